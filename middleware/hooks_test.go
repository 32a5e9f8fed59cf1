package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// concluded returns hooks that store which of OnSuccess, OnRetry and OnFailure has run.
func concluded(said *string) middleware.Hooks {
	return middleware.Hooks{
		AfterPerform: func(context.Context, *task.Request, any, error) { *said += "after " },
		OnSuccess:    func(context.Context, *task.Request, any) { *said += "success" },
		OnRetry:      func(_ context.Context, _ *task.Request, o task.Outcome) { *said += "retry " + o.Delay.String() },
		OnFailure:    func(_ context.Context, _ *task.Request, err error) { *said += "failure: " + err.Error() },
	}
}

type rude struct{}

func (rude) Error() string { return "rude" }
func (rude) Unwrap() error { panic("in a method") }

// TestHooksFollowTheOutcome shows that the hook after an attempt matches its outcome, and that no
// hook runs if the attempt does not count.
func TestHooksFollowTheOutcome(t *testing.T) {
	broken := errors.New("broken")
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		return ctx
	}
	alive := context.Background()
	policy := task.Metadata{Retry: task.Set("constant base=1000")}
	for _, c := range []struct {
		name string
		ctx  context.Context
		meta task.Metadata
		err  error
		want string
	}{
		{"success", alive, task.Metadata{}, nil, "after success"},
		{"failure", alive, task.Metadata{}, broken, "after failure: broken"},
		{"policy", alive, policy, broken, "after retry 1s"},
		{"policy, failed for good", alive, policy, task.Fail(broken), "after failure: broken"},
		{"snooze", alive, policy, task.Snooze(1), "after "},
		{"an error that panics", alive, task.Metadata{}, rude{}, "after failure: panic: in a method"},
		{"stop", ended(task.ErrShutdown), policy, broken, "after "},
		{"stop, yet it succeeded", ended(task.ErrShutdown), policy, nil, "after success"},
		{"stop, at most once", ended(task.ErrShutdown), task.Metadata{Idempotent: task.Set(false)}, broken, "after failure: broken"},
		{"lease lost", ended(task.ErrLeaseLost), policy, nil, "after "},
	} {
		var said string
		h := concluded(&said).Middleware(nil)(handler(func(context.Context) (any, error) { return 1, c.err }))
		res, err := h.Handle(c.ctx, request(c.meta))
		if said != c.want {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
		if res != 1 || !sameError(err, c.err) {
			t.Errorf("%s: the hooks made %v, %v of it", c.name, res, err)
		}
	}
}

func sameError(a, b error) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Error() == b.Error()
}

// TestHooksAfterGoexit shows that a handler that calls runtime.Goexit has failed, and that hooks
// run.
func TestHooksAfterGoexit(t *testing.T) {
	var said string
	h := concluded(&said).Middleware(nil)(handler(func(context.Context) (any, error) {
		runtime.Goexit()
		return nil, nil
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = h.Handle(context.Background(), request(task.Metadata{}))
	}()
	<-done
	if !strings.HasPrefix(said, "after failure: ") {
		t.Errorf("hooks said %q", said)
	}
}

func TestNoHooksNoMiddleware(t *testing.T) {
	set := middleware.HookSet{
		Global: []middleware.Hooks{{}},
		Tasks:  map[string][]middleware.Hooks{"x": {{OnSuccess: func(context.Context, *task.Request, any) {}}}},
	}
	if set.Middleware("t", nil) != nil || set.SendMiddleware(nil) != nil || set.Dequeued(nil) != nil {
		t.Error("there is middleware for a task without hooks")
	}
	if set.Middleware("x", nil) == nil {
		t.Error("there is none for a task with hooks")
	}
}

// TestSendHooksWithoutAProducer shows that the send middleware of hooks works in a context without
// a Confirmer.
func TestSendHooksWithoutAProducer(t *testing.T) {
	refused, said := errors.New("refused"), ""
	set := middleware.HookSet{Global: []middleware.Hooks{{
		AfterEnqueue: func(_ context.Context, _ string, _ *task.Envelope, err error) {
			said = "no error"
			if err != nil {
				said = err.Error()
			}
		},
	}}}
	for want, err := range map[string]error{"refused": refused, "no error": nil} {
		send := set.SendMiddleware(nil)(func(context.Context, string, *task.Envelope) error { return err })
		if got := send(t.Context(), "q", &task.Envelope{}); !errors.Is(got, err) || said != want {
			t.Errorf("%v gave %v, and the hook heard %q", err, got, said)
		}
	}
}

// TestSplit shows that Outside puts a task's middleware outside its limits, if no other middleware
// is around it.
func TestSplit(t *testing.T) {
	inner := handler(func(context.Context) (any, error) { return nil, nil })
	name := func(s string, said *string) middleware.Middleware {
		return func(next task.Handler) task.Handler {
			return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
				*said += s
				return next.Handle(ctx, r)
			})
		}
	}
	for _, c := range []struct {
		kinds string // o: outside, p: plain; the outermost first
		outer string
		left  string
	}{{"", "", ""}, {"oo", "01", ""}, {"op", "0", "1"}, {"po", "", "01"}, {"opo", "0", "12"}} {
		var said string
		h := inner
		for i := len(c.kinds) - 1; i >= 0; i-- {
			m := name(string(rune('0'+i)), &said)
			if c.kinds[i] == 'o' {
				m = middleware.Outside(m)
			}
			h = m(h)
		}
		outer, left := middleware.Split(h)
		if _, err := middleware.Chain(inner, outer...).Handle(t.Context(), request(task.Metadata{})); err != nil || said != c.outer {
			t.Errorf("%q: outside is %q, want %q", c.kinds, said, c.outer)
		}
		said = ""
		if _, err := left.Handle(t.Context(), request(task.Metadata{})); err != nil || said != c.left {
			t.Errorf("%q: left is %q, want %q", c.kinds, said, c.left)
		}
		said = ""
		if _, err := h.Handle(t.Context(), request(task.Metadata{})); err != nil || said != c.outer+c.left {
			t.Errorf("%q: as a whole it is %q", c.kinds, said)
		}
	}
}

func TestGuardLogsThePanic(t *testing.T) {
	var log bytes.Buffer
	middleware.Guard(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "mine", func() { panic("boom") }, slog.String("task", "x"))
	for _, part := range []string{"hook=mine", "panic: boom", "task=x", "TestGuardLogsThePanic"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log has no %q: %s", part, &log)
		}
	}
}
