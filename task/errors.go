package task

import (
	"errors"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// Errors that callers receive. Compare with [errors.Is]. Errors of a consumer arrive as a
// [*RemoteError], which matches the error that it was made from.
var (
	ErrBadName       = errors.New("swarmiji: bad name (want 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit)")
	ErrBadID         = errors.New("swarmiji: bad task id (want 1 to 128 visible ASCII characters)")
	ErrBadMetadata   = errors.New("swarmiji: bad metadata")
	ErrDuplicateTask = errors.New("swarmiji: a handler of this name is registered already")
	ErrNoResult      = errors.New("swarmiji: no result is kept for this task")
	// ErrGroupForgotten is returned for a group that waited longer than consumer.Tuning.GroupWait for
	// its next member and was deleted.
	ErrGroupForgotten = errors.New("swarmiji: the group was forgotten before all its members had ended")
	// ErrNotFound is returned if the result store has no record of the task.
	ErrNotFound = errors.New("swarmiji: no record of this task: never submitted, not started yet, or expired")

	ErrUnknownTask   = errors.New("swarmiji: no handler of this name is registered")
	ErrTimeLimit     = errors.New("swarmiji: time limit exceeded")
	ErrSoftTimeLimit = errors.New("swarmiji: soft time limit exceeded")
	ErrMaxRetries    = errors.New("swarmiji: retry limit exceeded")
	ErrRevoked       = errors.New("swarmiji: task revoked")
	ErrExpired       = errors.New("swarmiji: task expired before it could start")
	ErrPoison        = errors.New("swarmiji: task dead-lettered: its starts ended the process")
	ErrUncertain     = errors.New("swarmiji: the task runs at most once, and it is unknown whether it ran")
	ErrPanic         = errors.New("swarmiji: handler panicked")
	ErrBadArgs       = errors.New("swarmiji: arguments do not fit the task")
	ErrBadResult     = errors.New("swarmiji: result cannot be stored")
	ErrLeaseLost     = errors.New("swarmiji: the broker took the task back")
	ErrShutdown      = errors.New("swarmiji: the consumer is shutting down")
)

// wireTypes maps the errors of this package to the Type of a RemoteError. The names are part of the
// wire format.
var wireTypes = []struct {
	name string
	err  error
}{
	{"swarmiji.UnknownTask", ErrUnknownTask},
	{"swarmiji.TimeLimit", ErrTimeLimit},
	{"swarmiji.SoftTimeLimit", ErrSoftTimeLimit},
	{"swarmiji.MaxRetries", ErrMaxRetries},
	{"swarmiji.Revoked", ErrRevoked},
	{"swarmiji.Expired", ErrExpired},
	{"swarmiji.Poison", ErrPoison},
	{"swarmiji.Uncertain", ErrUncertain},
	{"swarmiji.Panic", ErrPanic},
	{"swarmiji.BadArgs", ErrBadArgs},
	{"swarmiji.BadResult", ErrBadResult},
	{typeRejected, ErrRejected},
	{"swarmiji.AnswerTimeout", ErrAnswerTimeout},
	{"swarmiji.NoAnswers", ErrNoAnswers},
	{"swarmiji.NoResult", ErrNoResult},
	{"swarmiji.NotCommitted", ErrNotCommitted},
	{"swarmiji.NoVerdict", ErrNoVerdict},
	{"swarmiji.NoCheckpoints", ErrNoCheckpoints},
	{"swarmiji.BadCheckpoint", ErrBadCheckpoint},
}

// Limits of the texts of a RemoteError, in bytes.
const (
	MaxErrorText = 4 << 10
	MaxStack     = 16 << 10
)

// MaxErrorArgs is the largest number of values in RemoteError.Args.
const MaxErrorArgs = 16

// RemoteError is the failure of a task as its submitter receives it, since the original error stays
// in the consumer's process. It is immutable. All its texts are valid UTF-8 and limited.
type RemoteError struct {
	// Name of an error of this package, such as "swarmiji.TimeLimit", the name of [Named], or the Go
	// type of the innermost error.
	Type    string
	Message string // at most 4 KiB
	Stack   string // the handler's stack if it panicked, at most 16 KiB; else ""

	// Module is the module of Type in a language that has modules, such as "builtins" in Python, at
	// most 255 bytes. "": an error of a Go program.
	Module string
	// Args are the values that the error was made with in such a language. nil: an error of a Go
	// program, or the values exceed [MaxErrorArgs] or 4 KiB in a record; Message is kept then. Values
	// are nil, bool, string, []byte, int64, uint64, float64, []any and map[string]any. Do not change.
	Args []any

	// Step and StepID name the task that failed, if this is the error of a task that did not run
	// because of it: a later step of a workflow, or the task after a group. "": the task itself
	// failed, or an older consumer wrote the record.
	Step   string
	StepID ID
}

// Error returns the message, after the name of the failed step if there is one.
func (e *RemoteError) Error() string {
	text := e.Message
	if text == "" {
		text = e.Type
	}
	if e.Step != "" {
		text = "step " + e.Step + ": " + text
	}
	return text
}

// OfStep returns a copy of the error with the name and id of the failed step. If e names a step
// already, it returns e.
func (e *RemoteError) OfStep(step string, id ID) *RemoteError {
	if e.Step != "" || e.StepID != "" {
		return e
	}
	at := *e
	at.Step, at.StepID = utf.Cut(step, 255), id
	return &at
}

// Is reports whether target is the error of this package that e was made from.
func (e *RemoteError) Is(target error) bool {
	for _, t := range wireTypes {
		if t.err == target {
			return t.name == e.Type
		}
	}
	return false
}

// Stacker is implemented by errors with a stack, such as those of a panic.
type Stacker interface {
	error
	Stack() string
}

// PanicError is the error of a function that panicked. It matches [ErrPanic].
type PanicError struct {
	Text  string // text of the panic value, at most 4 KiB; fields tagged `task:"secret"` are left out
	Trace string // stack of the panic, at most 16 KiB
}

// Error returns the text of the panic value.
func (e *PanicError) Error() string { return "panic: " + e.Text }

// Is reports whether target is [ErrPanic].
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// Stack returns the stack of the panic. It implements [Stacker].
func (e *PanicError) Stack() string { return e.Trace }

// Remote returns the RemoteError for err. It cuts texts to their limits and makes them valid UTF-8.
// A RemoteError in err's chain is returned as it is. Returns nil if err is nil.
func Remote(err error) *RemoteError {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*RemoteError](err); ok {
		return r
	}
	r := &RemoteError{Type: wireType(err), Message: utf.Cut(err.Error(), MaxErrorText)}
	if s, ok := errors.AsType[Stacker](err); ok {
		r.Stack = utf.Cut(s.Stack(), MaxStack)
	}
	return r
}

func wireType(err error) string {
	for _, t := range wireTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	for {
		if named, ok := err.(*namedError); ok { //nolint:errorlint // the chain is walked here
			return utf.Cut(named.name, maxErrorName)
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			return goType(err)
		}
		err = inner
	}
}

// Failure is the argument of the error task of a chain.
type Failure struct {
	ID      ID     `msgpack:"id" json:"id"`
	Type    string `msgpack:"type" json:"type"`
	Message string `msgpack:"message" json:"message"`
	Stack   string `msgpack:"stack,omitempty" json:"stack,omitempty"`
}
