package task_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

func TestDefer(t *testing.T) {
	v, ok := errors.AsType[*task.DeferVerdict](task.Defer("order-7", task.AnswerWithin(time.Hour)))
	if !ok || v.Key != "order-7" || v.Timeout != task.Set(time.Hour) || !strings.Contains(v.Error(), "order-7") {
		t.Fatalf("%+v", v)
	}
	if v, _ := errors.AsType[*task.DeferVerdict](task.Defer("k")); v.Timeout.IsSet() {
		t.Error("a time that nobody gave is set")
	}
	if v, _ := errors.AsType[*task.DeferVerdict](task.Defer("k", task.AnswerWithin(-1))); v.Timeout != task.Set(time.Duration(0)) {
		t.Errorf("a negative time is %v", v.Timeout)
	}
	if text := task.Defer(strings.Repeat("ä", 600)).Error(); len(text) > 128 {
		t.Errorf("the text of a long key has %d bytes", len(text))
	}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"wrapped", errors.Join(errors.New("a"), task.Defer("k")), true},
		{"failed for good", task.Fail(task.Defer("k")), false},
		{"retried", task.Retry(task.Defer("k")), false},
	} {
		_, is := task.VerdictOf(c.err).(*task.DeferVerdict) //nolint:errorlint // VerdictOf walks it
		if is != c.want {
			t.Errorf("%s: a deferral: %v, want %v", c.name, is, c.want)
		}
	}
}

type expected struct {
	keys []string
	err  error
}

func (e *expected) Expect(_ context.Context, key string) error {
	e.keys = append(e.keys, key)
	return e.err
}

func TestExpect(t *testing.T) {
	if err := task.Expect(t.Context(), "k"); !errors.Is(err, task.ErrNoAnswers) {
		t.Errorf("outside of a handler: %v", err)
	}
	e := &expected{}
	ctx := task.WithExpecter(t.Context(), e)
	if err := task.Expect(ctx, "k"); err != nil || len(e.keys) != 1 || e.keys[0] != "k" {
		t.Errorf("%v, asked for %q", err, e.keys)
	}
	e.err = errors.New("taken")
	if err := task.Expect(ctx, "k"); !errors.Is(err, e.err) {
		t.Errorf("its error is %v", err)
	}
}

func TestErrorsOfAnswersTravel(t *testing.T) {
	for _, err := range []error{task.ErrNoAnswers, task.ErrAnswerTimeout, task.ErrRejected} {
		if r := task.Remote(err); !errors.Is(r, err) || r.Message != err.Error() {
			t.Errorf("%v travels as %+v", err, r)
		}
	}
	if r := task.Remote(task.Rejected("no stock")); !errors.Is(r, task.ErrRejected) || r.Message != "no stock" {
		t.Errorf("a refusal travels as %+v", r)
	}
	if r := task.Remote(task.Rejected("")); !errors.Is(r, task.ErrRejected) || r.Message == "" {
		t.Errorf("a refusal without a reason travels as %+v", r)
	}
	if r := task.Remote(task.Rejected(strings.Repeat("x", 1<<20))); len(r.Message) > task.MaxErrorText {
		t.Errorf("a reason of %d bytes", len(r.Message))
	}
}

func TestStates(t *testing.T) {
	for _, s := range []task.State{task.StateSucceeded, task.StateFailed, task.StateRevoked, task.StateExpired} {
		if !s.Terminal() || !s.Recorded() || !s.Valid() {
			t.Errorf("%q: terminal %v, recorded %v, valid %v", s, s.Terminal(), s.Recorded(), s.Valid())
		}
	}
	for _, s := range []task.State{task.StateStarted, task.StateRetrying, task.StateAwaiting} {
		if s.Terminal() || !s.Recorded() || !s.Valid() {
			t.Errorf("%q: terminal %v, recorded %v, valid %v", s, s.Terminal(), s.Recorded(), s.Valid())
		}
	}
	if s := task.StatePending; s.Terminal() || s.Recorded() || !s.Valid() {
		t.Error("pending")
	}
	if s := task.State("none"); s.Terminal() || s.Recorded() || s.Valid() {
		t.Error("what is no state")
	}
}
