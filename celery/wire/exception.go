package wire

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Exception is an error as Celery's results hold it. Python makes an exception of the class that
// Module and Type name, with the arguments in Args. If that class does not exist it makes one of
// the name Type.
type Exception struct {
	Type   string // name of the class
	Module string // "": the class does not matter
	Args   []any
}

// Modules of Python's exceptions.
const (
	moduleBuiltins = "builtins"
	moduleCelery   = "celery.exceptions"
	moduleBilliard = "billiard.exceptions"
	moduleOwn      = "swarmiji" // of errors of Go programs; no such module exists
)

// classes maps errors of package task to the exceptions that mean the same. Those with back are
// converted back too.
var classes = []struct {
	err    error
	class  string
	module string
	args   []any
	back   bool
}{
	{task.ErrUnknownTask, "NotRegistered", moduleCelery, nil, true},
	{task.ErrTimeLimit, "TimeLimitExceeded", moduleBilliard, nil, true},
	{task.ErrSoftTimeLimit, "SoftTimeLimitExceeded", moduleBilliard, nil, true},
	{task.ErrExpired, "TaskRevokedError", moduleCelery, []any{"expired"}, false},
	{task.ErrRevoked, "TaskRevokedError", moduleCelery, []any{"revoked"}, true},
	{task.ErrMaxRetries, "MaxRetriesExceededError", moduleCelery, nil, true},
	{task.ErrBadArgs, "TypeError", moduleBuiltins, nil, false},
	{task.ErrPoison, "WorkerLostError", moduleBilliard, nil, true},
}

// ToException returns the exception for an error of the task called name:
//
//   - An error that has a Module is the exception that it was made from.
//   - Errors of package task that Celery has too become Celery's: time limits, revoked, expired and
//     unknown tasks, retry limits. Wrong arguments are a TypeError.
//   - Others have the last part of their Type, such as "PathError", and the module "swarmiji".
//
// The arguments are those of e, or else the message.
func ToException(e *task.RemoteError, name string) Exception {
	x := Exception{Type: className(e.Type), Module: moduleOwn, Args: e.Args}
	if e.Module != "" {
		x.Module = e.Module
	}
	for _, c := range classes {
		if !e.Is(c.err) {
			continue
		}
		x.Type, x.Module = c.class, c.module
		if x.Args == nil {
			x.Args = c.args
		}
		if c.class == "NotRegistered" && x.Args == nil {
			x.Args = []any{name}
		}
		break
	}
	if x.Args == nil {
		x.Args = []any{e.Message}
	}
	return x
}

// chordError returns Celery's exception for a chord whose part failed with e.
func chordError(e *task.RemoteError, _ string) Exception {
	x := ToException(e, e.Step)
	args := make([]string, len(x.Args))
	for i, v := range x.Args {
		args[i] = fmt.Sprint(v)
		if s, ok := v.(string); ok {
			args[i] = "'" + s + "'"
		}
	}
	text := fmt.Sprintf("Dependency %s raised %s(%s)", e.StepID, x.Type, strings.Join(args, ", "))
	return Exception{Type: "ChordError", Module: moduleCelery, Args: []any{utf.Cut(text, task.MaxErrorText)}}
}

// className returns the last part of the name of a Go type, as far as it is the name of a class.
func className(name string) string {
	name = name[strings.LastIndexAny(name, "./")+1:]
	name = strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, name)
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "Error"
	}
	return name
}

// FromException returns the error for an exception with this traceback. Its Type is the name of the
// class. For exceptions of Celery that mean the same as an error of package task, Type is that of
// this error, so that [errors.Is] finds it.
//
// Texts are cut to the limits of a [task.RemoteError]; of a traceback the end stays. Too many or
// too long Args are left out.
func FromException(x Exception, traceback string) *task.RemoteError {
	e := &task.RemoteError{Type: x.Type, Module: x.Module, Args: x.Args}
	for _, c := range classes {
		if c.back && c.class == x.Type && c.module == x.Module {
			e.Type = task.Remote(c.err).Type
		}
	}
	if x.Type == "TaskRevokedError" && x.Module == moduleCelery && len(x.Args) == 1 && x.Args[0] == "expired" {
		e.Type = task.Remote(task.ErrExpired).Type
	}
	switch {
	case len(x.Args) == 1:
		e.Message = fmt.Sprint(x.Args[0])
	case len(x.Args) > 1:
		e.Message = fmt.Sprint(x.Args...)
		if text, err := json.Marshal(x.Args); err == nil {
			e.Message = string(text)
		}
	}
	if text, err := json.Marshal(x.Args); err != nil || len(x.Args) > task.MaxErrorArgs || len(text) > task.MaxErrorText {
		e.Args = nil
	}
	if n := len(traceback) - task.MaxStack; n > 0 {
		traceback = traceback[n:]
	}
	e.Type, e.Module = utf.Cut(e.Type, task.MaxErrorText), utf.Cut(e.Module, 255)
	e.Message, e.Stack = utf.Cut(e.Message, task.MaxErrorText), utf.Cut(traceback, task.MaxStack)
	return e
}

// write returns the exception as a map of a result.
func (x *Exception) write(c coding) ([]byte, error) {
	args := x.Args
	if args == nil {
		args = []any{}
	}
	text, err := c.encode(args)
	if err != nil { // Celery writes values that it cannot encode as texts
		texts := make([]string, len(args))
		for i, v := range args {
			texts[i] = fmt.Sprint(v)
		}
		text, err = c.encode(texts)
	}
	if err != nil {
		return nil, err
	}
	class, err := c.encode(x.Type)
	if err != nil {
		return nil, err
	}
	module := []byte(nil)
	if module, err = c.encode(x.Module); err != nil {
		return nil, err
	}
	return c.joinMembers([]member{{"exc_type", class}, {"exc_message", text}, {"exc_module", module}})
}

// readException returns the exception in v, a generic value. Other values are an exception with
// that value as its argument.
func readException(v any) Exception {
	fields, ok := v.(map[string]any)
	if !ok {
		return Exception{Type: "Exception", Module: moduleBuiltins, Args: []any{v}}
	}
	x := Exception{}
	x.Type, _ = fields["exc_type"].(string)
	x.Module, _ = fields["exc_module"].(string)
	switch args := fields["exc_message"].(type) {
	case []any:
		x.Args = args
	case nil:
	default: // of older versions
		x.Args = []any{args}
	}
	if x.Type == "" {
		x.Type = "Exception"
	}
	return x
}
