// Package reach describes for people why a server cannot be used.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Error says in one sentence the server, its answer and the next step. It matches Class and Cause
// and does not print them, so that no words come twice. It is immutable.
type Error struct {
	Server string // such as "RabbitMQ at 127.0.0.1:5672", without secrets
	Found  string // the answer of the server or of the network
	Next   string // what to do
	Class  error  // the connection's sentinel; may be nil
	Cause  error
}

// The next steps after a failed connection and after a refused login.
const (
	Start  = "check that it runs, and scheme, host and port of the URL"
	Login  = "correct user and password in the URL"
	Scheme = "check scheme and port of the URL"
)

// Error returns the sentence: Server, Found and Next.
func (e *Error) Error() string { return e.Server + ": " + e.Found + "; " + e.Next }

// Unwrap returns Class and Cause.
func (e *Error) Unwrap() []error {
	if e.Class == nil {
		return []error{e.Cause}
	}
	return []error{e.Class, e.Cause}
}

// Reason returns a short text for err, the error of a failed connection. It leaves out the address
// of the server if it knows the kind of error.
func Reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "unknown host: " + dns.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}

// Ended returns the error of a call whose last attempt failed with err. end is the reason for which
// no other attempt follows, such as a ctx's error. The result matches class, err and end; its text
// has err and end.
func Ended(class, err, end error) error { return Also(fmt.Errorf("%w (%w)", err, end), class) }

// Also returns an error with the text of err that matches err and class. The class is not printed,
// because the text of err says the same.
func Also(err, class error) error { return &also{err, class} }

// also is an error with the text of its first part, which also matches class.
type also struct {
	error
	class error
}

// Unwrap returns the wrapped error and the class.
func (e *also) Unwrap() []error { return []error{e.error, e.class} }
