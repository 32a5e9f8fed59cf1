package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// mute is an error whose Error method panics.
type mute struct{}

func (mute) Error() string { panic("in Error") }

type account struct {
	Name string
	Key  string `task:"secret"`
}

// TestCall shows that a panic becomes an error with its text and its stack, and never ends the
// process.
func TestCall(t *testing.T) {
	mine := errors.New("mine")
	for want, value := range map[string]any{
		"panic: boom": "boom",
		"panic: mine": mine,
		"panic: " + strings.Repeat("x", task.MaxErrorText):    strings.Repeat("x", task.MaxErrorText+1),
		"panic: {Name:n Key:[redacted]}":                      account{"n", "k"},
		"panic: a guard_test.mute, whose text cannot be read": mute{},
	} {
		err := guard.Call(func() error { panic(value) })
		p, ok := errors.AsType[*task.PanicError](err)
		if !ok || !errors.Is(err, task.ErrPanic) || err.Error() != want || !strings.Contains(p.Stack(), "TestCall") || len(p.Trace) > task.MaxStack {
			t.Errorf("%T: %+v, want %s", value, err, want)
		}
	}
	for _, want := range []error{nil, mine} {
		if err := guard.Call(func() error { return want }); err != want { //nolint:errorlint // the same
			t.Errorf("%v became %v", want, err)
		}
	}
}
