package endtoend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// diary collects the lines that hooks write.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// take returns the lines written since its last call.
func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lines)
}

// hooks returns hooks that write their calls into the diary.
func (d *diary) hooks(who string) middleware.Hooks {
	return middleware.Hooks{
		BeforePerform: func(context.Context, *task.Request) error { d.add("%s before", who); return nil },
		AroundPerform: func(next task.Handler) task.Handler {
			return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
				d.add("%s in", who)
				defer d.add("%s out", who)
				return next.Handle(ctx, r)
			})
		},
		AfterPerform: func(_ context.Context, _ *task.Request, res any, err error) {
			d.add("%s after %v %t", who, res, err == nil)
		},
		OnSuccess: func(_ context.Context, _ *task.Request, res any) { d.add("%s success %v", who, res) },
		OnRetry: func(_ context.Context, _ *task.Request, o task.Outcome) {
			d.add("%s retry %d of %d: %v", who, o.Retries+1, o.Limit, o.Err)
		},
		OnFailure: func(_ context.Context, _ *task.Request, err error) {
			d.add("%s failure %t %t", who, errors.Is(err, errBroken), errors.Is(err, task.ErrMaxRetries))
		},
	}
}

// testHooks: the hooks of all tasks run first, then the task's own. Hooks after a run are called in
// the reverse order (S71, S72).
func testHooks(t *testing.T, open Open) {
	d := &diary{}
	sent, again, taken := &diary{}, &diary{}, &diary{}
	enqueue := func(who string, sent *diary) middleware.Hooks {
		return middleware.Hooks{
			BeforeEnqueue: func(_ context.Context, queue string, e *task.Envelope) error {
				sent.add("%s before %s", who, queue)
				return nil
			},
			AfterEnqueue: func(_ context.Context, _ string, e *task.Envelope, err error) {
				sent.add("%s after %s %v", who, e.Name, err)
			},
			Dequeue: func(ctx context.Context, r *task.Request) {
				_, ok := task.FromContext(ctx)
				taken.add("%s %s %t", who, r.Name, ok)
			},
		}
	}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Hooks = middleware.HookSet{Global: []middleware.Hooks{enqueue("all", sent)}, Tasks: map[string][]middleware.Hooks{"fail": {enqueue("own", sent)}}}
		c.Hooks.Tasks = middleware.HookSet{
			Global: []middleware.Hooks{d.hooks("all"), enqueue("all", again)},
			Tasks:  map[string][]middleware.Hooks{"fail": {d.hooks("own"), enqueue("own", again)}},
		}
	})
	handle(r, fail, flaky)
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	r.start()
	want(r, submit(r, work, 7), 7)
	r.sameLines(d, "all before", "all in", "all out", "all after 7 true", "all success 7")
	r.sameLines(taken, "all work true")
	sent.take() // without queues the first submissions may be refused

	policy := task.WithRetry(task.RetryPolicy{})
	wantError(r, submit(r, fail, "always", policy, task.WithRetryDelay(0), task.WithMaxRetries(1)), nil)
	run := []string{"all before", "own before", "all in", "own in", "own out", "all out", "own after 0 false"}
	first := append(slices.Clone(run), "own retry 1 of 1: "+errBroken.Error(), "all after 0 false", "all retry 1 of 1: "+errBroken.Error())
	last := append(slices.Clone(run), "own failure true true", "all after 0 false", "all failure true true")
	r.sameLines(d, append(first, last...)...)
	r.sameLines(taken, "all fail true", "own fail true", "all fail true", "own fail true")
	once := []string{"all before " + queueName, "own before " + queueName, "own after fail <nil>", "all after fail <nil>"}
	r.sameLines(sent, once...)
	r.sameLines(again, once...) // the retry
}

// sameLines waits until the diary has as many lines and compares them. Hooks run before the outcome
// is stored, except that the last hook of a submission may run at the same time.
func (r *road) sameLines(d *diary, lines ...string) {
	r.t.Helper()
	r.eventually("the hooks have run", func() bool { return d.len() >= len(lines) })
	if got := d.take(); !slices.Equal(got, lines) {
		r.t.Errorf("hooks wrote\n%q, want\n%q", got, lines)
	}
}

// testHookVeto: a hook vetoes by returning an error (S72). Before enqueue, the task is not sent.
// Before perform, the task does not run and the error decides the outcome.
func testHookVeto(t *testing.T, open Open) {
	veto := errors.New("not this one")
	d, sent := &diary{}, &diary{}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Hooks.Global = []middleware.Hooks{
			{AfterEnqueue: func(_ context.Context, _ string, e *task.Envelope, err error) { sent.add("%t", errors.Is(err, veto)) }},
			{
				BeforeEnqueue: func(_ context.Context, _ string, e *task.Envelope) error {
					if e.Headers["do"] == "veto" {
						return veto
					}
					return nil
				},
				AfterEnqueue: func(_ context.Context, _ string, _ *task.Envelope, err error) {
					if err != nil {
						sent.add("after its own veto")
					}
				},
			},
		}
		c.Hooks.Tasks.Global = []middleware.Hooks{
			{
				AfterPerform: func(_ context.Context, _ *task.Request, _ any, err error) { d.add("after %t", errors.Is(err, veto)) },
				OnRetry:      func(context.Context, *task.Request, task.Outcome) { d.add("retry") },
			},
			{
				BeforePerform: func(_ context.Context, r *task.Request) error {
					switch {
					case r.Headers["do"] == "fail":
						return veto
					case r.Headers["do"] == "retry" && r.Retries == 0:
						return task.Retry(veto, task.After(0))
					}
					return nil
				},
				OnFailure: func(_ context.Context, _ *task.Request, err error) { d.add("failure %t", errors.Is(err, veto)) },
			},
		}
	})
	handle(r, work, func(_ context.Context, i int) (int, error) { d.add("run"); return i, nil })
	r.start()
	do := func(how string) task.Option { return task.WithHeader("do", how) }
	want(r, submit(r, work, 1), 1)
	r.sameLines(d, "run", "after false")
	sent.take()

	if _, err := r.producer.Submit(r.ctx(), work.Call(1, do("veto"))); !errors.Is(err, veto) {
		t.Errorf("a veto before enqueue came back as %v", err)
	}
	r.sameLines(sent, "true")
	_, err := r.producer.SubmitAll(r.ctx(), []task.Call{work.Call(1, do("veto")), work.Call(2)})
	if !errors.Is(err, veto) {
		t.Errorf("a veto in a batch came back as %v", err)
	}
	r.sameLines(sent, "true", "false")
	r.sameLines(d, "run", "after false")

	remote := failure(r, submit(r, work, 1, do("fail"), task.WithRetry(task.RetryPolicy{})), nil)
	if remote.Message != veto.Error() {
		t.Errorf("a veto before perform came back as %+v", remote)
	}
	r.sameLines(d, "failure true", "after true")
	want(r, submit(r, work, 3, do("retry")), 3)
	r.sameLines(d, "after true", "retry", "run", "after false")
}

// testHookPanic: a panic in a hook becomes that hook's error and has no other effect.
func testHookPanic(t *testing.T, open Open) {
	d := &diary{}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Hooks.Global = []middleware.Hooks{{
			BeforeEnqueue: func(_ context.Context, _ string, e *task.Envelope) error {
				if e.Headers["panic"] == "enqueue" {
					panic("before enqueue")
				}
				return nil
			},
			AfterEnqueue: func(context.Context, string, *task.Envelope, error) { panic("after enqueue") },
		}}
		boom := middleware.Hooks{
			Dequeue: func(context.Context, *task.Request) { panic("dequeue") },
			BeforePerform: func(_ context.Context, r *task.Request) error {
				if r.Headers["panic"] == "before" {
					panic("before perform")
				}
				return nil
			},
			AroundPerform: func(next task.Handler) task.Handler {
				return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
					if r.Headers["panic"] == "around" {
						panic("around perform")
					}
					return next.Handle(ctx, r)
				})
			},
			AfterPerform: func(context.Context, *task.Request, any, error) { panic("after perform") },
			OnSuccess:    func(context.Context, *task.Request, any) { panic("on success") },
			OnFailure:    func(context.Context, *task.Request, error) { panic("on failure") },
		}
		c.Hooks.Tasks.Global = []middleware.Hooks{
			{
				AfterPerform: func(context.Context, *task.Request, any, error) { d.add("after") },
				OnSuccess:    func(context.Context, *task.Request, any) { d.add("success") },
				OnFailure:    func(context.Context, *task.Request, error) { d.add("failure") },
			},
			boom,
		}
	})
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	r.start()
	want(r, submit(r, work, 5), 5)
	r.sameLines(d, "after", "success")
	if _, err := r.producer.Submit(r.ctx(), work.Call(1, task.WithHeader("panic", "enqueue"))); !errors.Is(err, task.ErrPanic) {
		t.Errorf("a panic before enqueue came back as %v", err)
	}
	for _, where := range []string{"before", "around"} {
		remote := failure(r, submit(r, work, 5, task.WithHeader("panic", where)), task.ErrPanic)
		if !contains(remote.Message, where+" perform") {
			t.Errorf("a panic %s perform came back as %+v", where, remote)
		}
		r.sameLines(d, "after", "failure")
	}
	want(r, submit(r, work, 6), 6)
	for _, hook := range []string{"after enqueue", "dequeue", "after perform", "on success", "on failure"} {
		if !contains(r.log.String(), "panic: "+hook) {
			t.Errorf("nothing was logged of the panic in %s", hook)
		}
	}
}
