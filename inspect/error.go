package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Classes of errors. Every error of an [API] is an [*Error] and matches exactly one of them.
var (
	ErrNotFound    = errors.New("inspect: not found")            // the named thing does not exist
	ErrInvalid     = errors.New("inspect: invalid argument")     // an argument has no meaning
	ErrUnsupported = errors.New("inspect: unsupported")          // a part is missing or cannot do it
	ErrConflict    = errors.New("inspect: not in this state")    // the state of the thing forbids it
	ErrNoConsumer  = errors.New("inspect: no consumer answered") // no running consumer has obeyed
	ErrUnavailable = errors.New("inspect: unavailable")          // a server gave no answer in time
	ErrDenied      = errors.New("inspect: denied")               // the caller may not do it
	ErrInternal    = errors.New("inspect: internal error")       // any other error
)

// Code is the class of an [Error] as a word. The values are part of the JSON form.
type Code string

// The codes, one for each sentinel.
const (
	CodeNotFound    Code = "not_found"
	CodeInvalid     Code = "invalid"
	CodeUnsupported Code = "unsupported"
	CodeConflict    Code = "conflict"
	CodeNoConsumer  Code = "no_consumer"
	CodeUnavailable Code = "unavailable"
	CodeDenied      Code = "denied"
	CodeInternal    Code = "internal"
)

// sentinel returns the sentinel of c, or ErrInternal for an unknown code.
func (c Code) sentinel() error {
	switch c {
	case CodeNotFound:
		return ErrNotFound
	case CodeInvalid:
		return ErrInvalid
	case CodeUnsupported:
		return ErrUnsupported
	case CodeConflict:
		return ErrConflict
	case CodeNoConsumer:
		return ErrNoConsumer
	case CodeUnavailable:
		return ErrUnavailable
	case CodeDenied:
		return ErrDenied
	}
	return ErrInternal
}

// Error is the error of an [API]. It matches the sentinel of its Code, and of the local
// implementation also the errors of the ports. It holds no secret.
type Error struct {
	Code Code `json:"code"`
	// Text names the attempted action, the answer, and often the next step.
	Text string `json:"text"`
	// Help is the setting or the command that helps. "": unknown.
	Help string `json:"help,omitempty"`

	cause error // nil if the error came from another process
}

// Error returns the text, and the help after it.
func (e *Error) Error() string {
	if e.Help == "" {
		return e.Text
	}
	return e.Text + "; " + e.Help
}

// Is reports whether target is the sentinel of e.Code.
func (e *Error) Is(target error) bool { return target == e.Code.sentinel() }

// Unwrap returns the error of a port, or nil.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of an error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return Wrap(err).Code
}

// classes lists the errors of the ports by code. The first match decides.
func classes() []struct {
	code Code
	errs []error
} {
	return []struct {
		code Code
		errs []error
	}{
		{CodeUnsupported, []error{broker.ErrUnsupported, schedule.ErrUnsupported, jobs.ErrUnsupported, revoke.ErrTooLong, events.ErrNotRetained}},
		{CodeConflict, []error{settings.ErrConflict, settings.ErrFull, jobs.ErrState, jobs.ErrIsRunning, jobs.ErrOver, deadletter.ErrNoRetry}},
		{CodeInvalid, []error{task.ErrBadID, task.ErrBadName, history.ErrQuery, history.ErrMalformed, settings.ErrBad, deadletter.ErrFilter, control.ErrCommand, revoke.ErrBadSelector, jobs.ErrBadJob, schedule.ErrBadEntry}},
		{CodeNotFound, []error{broker.ErrNoQueue, broker.ErrNotFound, resultstore.ErrNotFound, schedule.ErrNotFound, jobs.ErrNotFound, task.ErrNotFound, history.ErrNotFound}},
		{CodeNoConsumer, []error{revoke.ErrUnheard, control.ErrMissing}},
		{CodeUnavailable, []error{
			broker.ErrUnavailable, broker.ErrAccess, resultstore.ErrUnavailable, events.ErrUnavailable, schedule.ErrUnavailable, jobs.ErrUnavailable,
			limit.ErrUnavailable, history.ErrUnavailable, settings.ErrUnavailable, revoke.ErrUnconfirmed, context.DeadlineExceeded, context.Canceled,
		}},
	}
}

// Wrap returns err as an [*Error], for authors of implementations. An [*Error] stays as it is. The
// code follows from the sentinels of the ports that err matches. Returns nil for nil.
func Wrap(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Error() == err.Error() {
			return e
		}
		return &Error{Code: e.Code, Text: err.Error(), cause: err}
	}
	e := &Error{Code: CodeInternal, Text: err.Error(), cause: err}
	for _, class := range classes() {
		for _, sentinel := range class.errs {
			if errors.Is(err, sentinel) {
				e.Code = class.code
				return e
			}
		}
	}
	return e
}

// wrapped is Wrap as an error, which is nil for nil.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return Wrap(err)
}

// errorf returns an error of a class.
func errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// missing returns the error for a part that the configuration lacks.
func missing(what, help string) error {
	return &Error{Code: CodeUnsupported, Text: what + " cannot be shown or changed here", Help: help}
}
