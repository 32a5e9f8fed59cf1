package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// Classes of the errors of this package. Compare with [errors.Is]. No error holds a password.
var (
	// ErrClosed reports that the Conn was closed.
	ErrClosed = errors.New("redis connection closed")
	// ErrUnavailable reports that no server was usable until ctx ended. The command was certainly not
	// executed.
	ErrUnavailable = errors.New("no redis connection")
	// ErrIndeterminate reports that ctx or the connection ended before the answer arrived. The command
	// may have been executed.
	ErrIndeterminate = errors.New("redis command without an answer")
	// ErrBlocked reports that the server accepted no writes until ctx ended: out of memory, too few
	// replicas, or a failing disk. The command was not executed.
	ErrBlocked = errors.New("redis takes no writes")
	// ErrAccess reports that the server refused the credentials or the command.
	ErrAccess = errors.New("redis access refused")
	// ErrRefused reports any other error answer of the server. The command, or the rest of a script,
	// was not executed.
	ErrRefused = errors.New("redis refused the command")
)

// failure is an error with its class. The cause is an error of the client or the network.
type failure struct {
	class error
	cause error
}

// Error returns the texts of class and cause. A cause that says which server cannot be used, and
// why, needs no class.
func (e *failure) Error() string {
	if r, ok := errors.AsType[*reach.Error](e.cause); ok && !errors.Is(e.class, ErrClosed) {
		return r.Error()
	}
	return e.class.Error() + ": " + e.cause.Error()
}

// Unwrap returns class and cause.
func (e *failure) Unwrap() []error { return []error{e.class, e.cause} }

// Class returns the class of an error of this package, or nil for any other error.
func Class(err error) error {
	for _, class := range []error{ErrClosed, ErrIndeterminate, ErrUnavailable, ErrBlocked, ErrAccess, ErrRefused} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// classify wraps an error of the client with its class. sent reports whether the command may have
// been sent: a lost connection is then ErrIndeterminate, otherwise ErrUnavailable. An error answer
// gets the class of classOfAnswer. It returns nil, redis.Nil and classified errors unchanged.
func classify(err error, sent bool) error {
	if err == nil || errors.Is(err, redis.Nil) || Class(err) != nil {
		return err
	}
	switch {
	case errors.Is(err, redis.ErrClosed):
		return &failure{ErrClosed, err}
	// the command got no connection
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
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

// login is the beginning of an answer by which a server refuses a login, and the next step for a
// person.
type login struct{ prefix, next string }

// logins maps the beginnings of answers to a login, or to the choice of a database, to next steps.
var logins = []login{
	{"NOAUTH", "give user and password in the URL"},
	{"WRONGPASS", reach.Login},
	{"ERR invalid password", reach.Login},
	{"ERR AUTH", reach.Login},
	{"ERR Client sent AUTH", "leave the password out of the URL"},
	{"DENIED", "set a password on the server, or switch off its protected mode"},
	{"ERR DB index", "correct the number of the database in the URL"},
}

// classify does the same as the function classify. The error of a failed connection or a refused
// login also names the servers and the next step.
func (c *Conn) classify(err error, sent bool) error {
	err = classify(err, sent)
	f, ok := err.(*failure) //nolint:errorlint // as classify made it
	if !ok {
		return err
	}
	e := &reach.Error{Server: "Redis at " + c.servers, Cause: f.cause}
	answer, answered := errors.AsType[redis.Error](f.cause)
	_, described := errors.AsType[*reach.Error](f.cause)
	switch {
	case answered:
		i := slices.IndexFunc(logins, func(l login) bool { return strings.HasPrefix(answer.Error(), l.prefix) })
		if i < 0 {
			return err
		}
		_, found, _ := strings.Cut(answer.Error(), " ")
		e.Found, e.Next = strings.TrimSuffix(found, "."), logins[i].next
	case f.class == ErrUnavailable && !described && !errors.Is(err, redis.ErrPoolTimeout): //nolint:errorlint // a class
		e.Found, e.Next = utf.Cut(reach.Reason(f.cause), 120), reach.Start
	default:
		return err
	}
	return &failure{f.class, e}
}

// answers maps the beginnings of the server's error answers to classes.
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
	{"BUSY ", ErrUnavailable}, // but not BUSYGROUP or BUSYKEY
	{"NOSCRIPT", ErrUnavailable},
	{"ERR max number of clients", ErrUnavailable},
}

// classOfAnswer returns the class of an error answer of the server. Default: ErrRefused.
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

// IsNoScript reports whether err is the server's answer that it does not know a script by its
// digest.
func IsNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// ended returns the error of a call that waited to be repeated when its ctx ended or its Conn was
// closed. last is the error of its last attempt, or nil.
//
//   - ctx has not ended: ErrClosed.
//   - ctx has ended without an attempt: ErrUnavailable with ctx's error.
//   - Otherwise: last with ctx's error in its text and its chain.
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
