package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The classes of this package's errors. Compare with [errors.Is]. No error of this package holds a password.
var (
	// ErrClosed: the Conn was closed.
	ErrClosed = errors.New("redis connection closed")
	// ErrUnavailable: there was no usable server until ctx ended; the command was surely not executed.
	ErrUnavailable = errors.New("no redis connection")
	// ErrIndeterminate: the command may have been executed, and ctx or the connection ended before the answer came.
	ErrIndeterminate = errors.New("redis command without an answer")
	// ErrBlocked: the server takes no writes (out of memory, too few replicas, a failing disk) until ctx ended; the command
	// was not executed.
	ErrBlocked = errors.New("redis takes no writes")
	// ErrAccess: the server refused the credentials or the command.
	ErrAccess = errors.New("redis access refused")
	// ErrRefused: the server answered with an error of another kind; the command, or the rest of a script, was not executed.
	ErrRefused = errors.New("redis refused the command")
)

// failure is an error with its class. The cause is the client's or the network's own.
type failure struct {
	class error
	cause error
}

func (e *failure) Error() string   { return e.class.Error() + ": " + e.cause.Error() }
func (e *failure) Unwrap() []error { return []error{e.class, e.cause} }

// Class returns the class of an error of this package, nil if it has none.
func Class(err error) error {
	for _, class := range []error{ErrClosed, ErrIndeterminate, ErrUnavailable, ErrBlocked, ErrAccess, ErrRefused} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// classify puts the class beside an error of the client. sent tells whether the command may have left.
func classify(err error, sent bool) error {
	if err == nil || errors.Is(err, redis.Nil) || Class(err) != nil {
		return err
	}
	switch {
	case errors.Is(err, redis.ErrClosed):
		return &failure{ErrClosed, err}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted): // it got no connection
		return &failure{ErrUnavailable, err}
	}
	if rerr, ok := errors.AsType[redis.Error](err); ok {
		return &failure{classOfAnswer(rerr), err}
	}
	if _, unused := errors.AsType[*unusedError](err); unused || !sent {
		return &failure{ErrUnavailable, err}
	}
	return &failure{ErrIndeterminate, err}
}

// answers are what the beginnings of the server's error answers mean.
var answers = []struct {
	prefix string
	class  error
}{
	{"NOAUTH", ErrAccess},
	{"WRONGPASS", ErrAccess},
	{"NOPERM", ErrAccess},
	{"ERR invalid password", ErrAccess},
	{"ERR AUTH", ErrAccess},
	{"ERR Client sent AUTH", ErrAccess},
	{"DENIED", ErrAccess}, // protected mode
	{"OOM", ErrBlocked},
	{"MISCONF", ErrBlocked},
	{"NOREPLICAS", ErrBlocked},
	{"LOADING", ErrUnavailable},
	{"READONLY", ErrUnavailable},
	{"MASTERDOWN", ErrUnavailable},
	{"CLUSTERDOWN", ErrUnavailable},
	{"TRYAGAIN", ErrUnavailable},
	{"MOVED", ErrUnavailable},
	{"ASK", ErrUnavailable},
	{"BUSY ", ErrUnavailable}, // and not BUSYGROUP or BUSYKEY
	{"NOSCRIPT", ErrUnavailable},
	{"ERR max number of clients", ErrUnavailable},
}

// classOfAnswer returns the class of an error that the server answered.
func classOfAnswer(err redis.Error) error {
	text := err.Error()
	for _, a := range answers {
		if strings.HasPrefix(text, a.prefix) {
			return a.class
		}
	}
	if redis.IsAuthError(err) || redis.IsPermissionError(err) {
		return ErrAccess
	}
	return ErrRefused
}

// IsNoScript reports whether the server does not know a script by its digest.
func IsNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// ended is the error of a call whose ctx ended, or whose Conn was closed, while it waited to try again. last is why it waited.
func (c *Conn) ended(ctx context.Context, last error) error {
	switch {
	case ctx.Err() == nil:
		return &failure{ErrClosed, io.ErrClosedPipe}
	case last == nil:
		return &failure{ErrUnavailable, ctx.Err()}
	default:
		return fmt.Errorf("%w (%w)", last, ctx.Err())
	}
}
