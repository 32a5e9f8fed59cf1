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

// Classes of the errors of this package. Compare with [errors.Is]. No error holds a password or a
// URL.
var (
	// ErrClosed reports that the Conn was closed.
	ErrClosed = errors.New("nats connection closed")
	// ErrUnavailable reports that no connection was usable until ctx ended, or that the server cannot
	// serve now. No message was stored.
	ErrUnavailable = errors.New("no nats connection")
	// ErrIndeterminate reports that ctx or the connection ended before the answer arrived. The message
	// or request may have been sent.
	ErrIndeterminate = errors.New("nats request without an answer")
	// ErrBlocked reports that the server has no space for the message: storage, memory, or a limit of
	// the stream or the account.
	ErrBlocked = errors.New("nats server takes no messages")
	// ErrAccess reports that the server refused the credentials or a subject, or that JetStream is not
	// enabled for the account. The Conn keeps trying, so that it recovers when access is granted.
	ErrAccess = errors.New("nats access refused")
	// ErrNoStream reports that the stream does not exist or that no stream accepts the subject. No
	// message was stored.
	ErrNoStream = errors.New("no such nats stream")
	// ErrNoConsumer reports that the consumer does not exist.
	ErrNoConsumer = errors.New("no such nats consumer")
	// ErrNotFound reports that the message does not exist.
	ErrNotFound = errors.New("no such nats message")
	// ErrTooLarge reports that the message exceeds a limit of the server or the stream. It was not
	// stored.
	ErrTooLarge = errors.New("nats message too large")
	// ErrWrongSequence reports that the last sequence differs from the sequence that the message
	// expects. The message was not stored.
	ErrWrongSequence = errors.New("nats message expects another last sequence")
	// ErrOccupied reports that the stream already holds a message of this subject, accepts only one,
	// and discards new ones. The message was not stored.
	ErrOccupied = errors.New("nats subject already holds a message")
	// ErrTooMany reports that the stream or the account has its maximum number of consumers.
	ErrTooMany = errors.New("too many nats consumers")
)

// classes lists all classes.
var classes = [...]error{
	ErrClosed, ErrUnavailable, ErrIndeterminate, ErrBlocked, ErrAccess, ErrNoStream, ErrNoConsumer, ErrNotFound, ErrTooLarge,
	ErrWrongSequence, ErrOccupied, ErrTooMany,
}

// Codes of the JetStream API for which the client has no names.
const (
	codeAccountResources    = 10002 // limits of the account
	codeNoPeers             = 10005 // too few servers for the replicas; the text names the reason
	codeUnavailable         = 10008 // the cluster has no leader
	codeResources           = 10023
	codeMaxConsumers        = 10026
	codeMemory              = 10028
	codeNoMemory            = 10044
	codeStorage             = 10047
	codeStreamOffline       = 10118
	codeStreamStore         = 10077 // the text names the limit
	codeNotEnabledAccount   = 10039
	codeNotEnabled          = 10076
	codeDeleteFailed        = 10057 // the text names the reason
	codeNoMessage           = 10043 // deletion of a missing message
	codeStreamNotFound      = 10059
	codeConsumerNotFound    = 10014
	codeMessageNotFound     = 10037
	codeMessageTooLarge     = 10054
	codeWrongSequence       = 10071
	codeWrongSequenceShort  = 10164
	codeSequenceBusy        = 10158 // another message of the subject is being stored
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

// Classify wraps an error of the client library with its class. It returns nil, classified errors
// and errors without a class unchanged.
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

// classOf returns the class of an error of the client library, or nil.
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

// isAny reports whether err wraps one of targets.
func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// classOfCode returns the class of a JetStream API error with the given code, or nil. For the codes
// of a failed store and of too few servers the text of err decides.
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
	case codeNoPeers:
		// The text lists all reasons. This one passes: a server starts or was lost.
		if strings.HasSuffix(err.Error(), "for placement, peer offline") {
			return ErrUnavailable
		}
		return nil
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
