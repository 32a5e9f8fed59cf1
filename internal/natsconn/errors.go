package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/netconn"
)

// The classes of this package's errors. Compare with [errors.Is]. No error of this package holds a password or a URL.
var (
	// ErrClosed: the Conn was closed.
	ErrClosed = errors.New("nats connection closed")
	// ErrUnavailable: there was no usable connection until ctx ended, or the server answered that it cannot serve just now;
	// nothing was stored.
	ErrUnavailable = errors.New("no nats connection")
	// ErrIndeterminate: the message or request may have been sent, and ctx or the connection ended before the answer came.
	ErrIndeterminate = errors.New("nats request without an answer")
	// ErrBlocked: the server has no room for the message: storage, memory or a limit of the stream or the account.
	ErrBlocked = errors.New("nats server takes no messages")
	// ErrAccess: the server refused the credentials, a subject, or JetStream is not enabled for the account. The Conn goes
	// on trying, so that it recovers when that is mended.
	ErrAccess = errors.New("nats access refused")
	// ErrNoStream: there is no such stream, or no stream takes the subject; nothing was stored.
	ErrNoStream = errors.New("no such nats stream")
	// ErrNoConsumer: there is no such consumer.
	ErrNoConsumer = errors.New("no such nats consumer")
	// ErrNotFound: there is no such message.
	ErrNotFound = errors.New("no such nats message")
	// ErrTooLarge: the message is larger than the server or the stream takes; nothing was stored.
	ErrTooLarge = errors.New("nats message too large")
	// ErrWrongSequence: an expectation that the message carried about the last sequence did not hold; nothing was stored.
	ErrWrongSequence = errors.New("nats expected sequence does not hold")
	// ErrOccupied: the stream holds a message of this subject already, takes one of each, and discards new ones; nothing was
	// stored.
	ErrOccupied = errors.New("nats subject holds a message already")
	// ErrTooMany: the stream or the account has as many consumers as it may have.
	ErrTooMany = errors.New("too many nats consumers")
	// ErrConfig: a stream exists whose configuration cannot be what is needed.
	ErrConfig = errors.New("nats stream has another configuration")
)

// classes is all of them.
var classes = [...]error{
	ErrClosed, ErrUnavailable, ErrIndeterminate, ErrBlocked, ErrAccess, ErrNoStream, ErrNoConsumer, ErrNotFound, ErrTooLarge,
	ErrWrongSequence, ErrOccupied, ErrTooMany, ErrConfig,
}

// Codes of the JetStream API for which the client has no name.
const (
	codeAccountResources    = 10002 // the account's limits
	codeUnavailable         = 10008 // the cluster has no leader
	codeResources           = 10023
	codeMaxConsumers        = 10026
	codeMemory              = 10028
	codeNoMemory            = 10044
	codeStorage             = 10047
	codeStreamOffline       = 10118
	codeStreamStore         = 10077 // the text tells which limit
	codeNotEnabledAccount   = 10039
	codeNotEnabled          = 10076
	codeDeleteFailed        = 10057 // the text tells why
	codeNoMessage           = 10043 // deleting one that is not there
	codeStreamNotFound      = 10059
	codeConsumerNotFound    = 10014
	codeMessageNotFound     = 10037
	codeMessageTooLarge     = 10054
	codeWrongSequence       = 10071
	codeWrongSequenceShort  = 10164
	codeSequenceBusy        = 10158 // somebody else's message of the subject is in flight
	codeTooManyRequests     = 10167
	codeConsumerNotExisting = 10149
)

// Code returns the code of a JetStream API error, or 0.
func Code(err error) int {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return int(js.APIError().ErrorCode)
	}
	return 0
}

// Classify puts the class beside an error of the client library. An error that has a class or none fits, and nil, is returned
// as it is.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range classes {
		if errors.Is(err, c) {
			return err
		}
	}
	if c := classOf(err); c != nil {
		return fmt.Errorf("%w: %w", c, err)
	}
	return err
}

func classOf(err error) error {
	if c := classOfCode(Code(err), err); c != nil {
		return c
	}
	switch {
	case isAny(err, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrPermissionViolation, nats.ErrNkeysNotSupported):
		return ErrAccess
	case isAny(err, nats.ErrReconnectBufExceeded, nats.ErrNoServers, nats.ErrConnectionReconnecting):
		return ErrUnavailable
	case isAny(err, nats.ErrNoResponders, jetstream.ErrNoStreamResponse):
		return ErrNoStream
	case isAny(err, nats.ErrMaxPayload):
		return ErrTooLarge
	case isAny(err, nats.ErrConnectionClosed, nats.ErrTimeout, nats.ErrDisconnected, context.DeadlineExceeded, context.Canceled, netconn.ErrNotWritten):
		return ErrIndeterminate
	default:
		return nil
	}
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

func classOfCode(code int, err error) error {
	switch code {
	case codeAccountResources, codeResources, codeMemory, codeNoMemory, codeStorage, codeTooManyRequests:
		return ErrBlocked
	case codeMaxConsumers:
		return ErrTooMany
	case codeStreamStore:
		switch s := err.Error(); {
		case strings.Contains(s, "per subject"):
			return ErrOccupied
		case strings.Contains(s, "maximum"):
			return ErrBlocked
		}
		return ErrUnavailable
	case codeUnavailable, codeStreamOffline:
		return ErrUnavailable
	case codeNotEnabledAccount, codeNotEnabled:
		return ErrAccess
	case codeStreamNotFound:
		return ErrNoStream
	case codeConsumerNotFound, codeConsumerNotExisting:
		return ErrNoConsumer
	case codeMessageNotFound:
		return ErrNotFound
	case codeMessageTooLarge:
		return ErrTooLarge
	case codeWrongSequence, codeWrongSequenceShort, codeSequenceBusy:
		return ErrWrongSequence
	default:
		return nil
	}
}
