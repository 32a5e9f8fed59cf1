package endtoend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// ask is a task whose answer comes from outside. Its argument is the key.
var ask = task.New[string, int]("ask")

// withJobs makes a job service, and a function that gives a job store to the consumers of a test.
func withJobs(t *testing.T) (*jobs.Service, func(*producer.Config, *consumer.Config)) {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store, EarlyFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, s, store) })
	return s, func(_ *producer.Config, c *consumer.Config) { c.Deferrals = deferralsOf(t, s) }
}

// deferralsOf returns the deferrals in the store of a service.
func deferralsOf(t *testing.T, s *jobs.Service) *deferrals.Store {
	t.Helper()
	d, err := deferrals.New(deferrals.Config{Jobs: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// asking is a road whose tasks wait for answers.
type asking struct {
	*road
	jobs *jobs.Service
	asks chan string // keys for which a request was sent
}

func newAsking(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) *asking {
	t.Helper()
	s, jobs := withJobs(t)
	return &asking{road: newRoad(t, open, append(change, jobs)...), jobs: s, asks: make(chan string, 100)}
}

// handleAsk registers a handler that reserves its answer before it sends the request.
func (a *asking) handleAsk(r *road, t task.Task[string, int], opts ...task.DeferOption) {
	a.t.Helper()
	handle(r, t, func(ctx context.Context, key string) (int, error) {
		if err := task.Expect(ctx, key); err != nil {
			return 0, err
		}
		a.asks <- key
		return 0, task.Defer(key, opts...)
	})
}

// asked waits for a request and returns its key.
func (a *asking) asked() string {
	a.t.Helper()
	select {
	case key := <-a.asks:
		return key
	case <-a.ctx().Done():
		a.t.Fatal("nobody was asked")
		return ""
	}
}

func (a *asking) complete(name, key string, result any, want jobs.ReceiptKind) {
	a.t.Helper()
	got, err := a.jobs.Complete(a.ctx(), name, key, result)
	if err != nil || got.Kind != want {
		a.t.Fatalf("the answer for %s: %+v, %v; want %s", key, got, err, want)
	}
}

// refuse rejects a key. It fails the test unless the rejection is accepted.
func (a *asking) refuse(key, reason string) {
	a.t.Helper()
	if got, err := a.jobs.Reject(a.ctx(), "ask", key, errors.New(reason)); err != nil || got.Kind != jobs.Accepted {
		a.t.Fatalf("the refusal for %s: %+v, %v", key, got, err)
	}
}

// over waits until a task's deferral has ended, which happens after the end of the task.
func (a *asking) over(key string) {
	a.t.Helper()
	a.reached(key, jobstore.DeferralOver)
}

// reached waits until a task's deferral has a phase.
func (a *asking) reached(key string, phase jobstore.DeferralPhase) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("the deferral of %s is %s", key, phase), func() bool {
		has := false
		err := a.jobs.Store().View(a.ctx(), func(ctx context.Context, tx jobstore.Tx) error {
			d, err := tx.DeferralOf(ctx, "ask", key)
			has = d != nil && d.Phase == phase
			return err
		})
		if err != nil {
			a.t.Fatal(err)
		}
		return has
	})
}

// testDeferred: a deferred task holds no worker, and its answer becomes its result. Further answers
// change nothing.
func testDeferred(t *testing.T, open Open) {
	a := newAsking(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{queueName: {Workers: 1, Prefetch: 1}}
	})
	a.handleAsk(a.road, ask)
	a.start()
	var fs []*task.Future[int]
	for i := range 3 { // through one worker that holds one message at a time
		key := fmt.Sprint("k", i)
		fs = append(fs, submit(a.road, ask, key))
		if got := a.asked(); got != key {
			t.Fatalf("asked for %s", got)
		}
	}
	if results := a.h.Results(t); !resultstore.RepliesOnly(results) {
		a.eventually("the state is recorded", func() bool { s, _ := fs[0].State(a.ctx()); return s == task.StateAwaiting })
		_ = results.Close(a.ctx())
	}
	for i, f := range fs {
		a.complete("ask", fmt.Sprint("k", i), 40+i, jobs.Accepted)
		want(a.road, f, 40+i)
	}
	a.over("k1")
	a.complete("ask", "k1", 7, jobs.Duplicate)
	want(a.road, fs[1], 41)
}

// testDeferredFails: refusals and missing answers fail an attempt, and a retry policy can name
// them. The next attempt may wait for the same key.
func testDeferredFails(t *testing.T, open Open) {
	a := newAsking(t, open)
	a.handleAsk(a.road, ask)
	hasty := task.New[string, int]("hasty")
	a.handleAsk(a.road, hasty, task.AnswerWithin(0))
	a.start()
	retried := submit(a.road, ask, "r", task.WithRetry(task.RetryPolicy{On: []string{"swarmiji.Rejected"}, Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Millisecond}}))
	a.asked()
	a.refuse("r", "busy")
	a.asked()
	a.complete("ask", "r", 5, jobs.Accepted)
	want(a.road, retried, 5)

	refused := submit(a.road, ask, "n")
	a.asked()
	a.refuse("n", "no stock")
	if err := failure(a.road, refused, task.ErrRejected); err.Message != "no stock" {
		t.Errorf("refused with %+v", err)
	}
	a.over("n")
	a.complete("ask", "n", 1, jobs.Duplicate)

	late := submit(a.road, hasty, "t")
	wantError(a.road, late, task.ErrAnswerTimeout)
	a.eventually("a late answer is told", func() bool {
		got, err := a.jobs.Complete(a.ctx(), "hasty", "t", 1)
		if err != nil {
			t.Fatal(err)
		}
		return got.Kind == jobs.Late
	})
}

// testDeferredEarly: an early answer is kept for the handler, whether the handler had reserved it
// or not.
func testDeferredEarly(t *testing.T, open Open) {
	a := newAsking(t, open)
	handle(a.road, ask, func(ctx context.Context, key string) (int, error) {
		kind := jobs.Early
		if key == "expected" {
			kind = jobs.Accepted
			if err := task.Expect(ctx, key); err != nil {
				return 0, err
			}
		}
		a.complete("ask", key, 9, kind)
		return 0, task.Defer(key)
	})
	a.start()
	want(a.road, submit(a.road, ask, "expected"), 9)
	want(a.road, submit(a.road, ask, "sudden"), 9)
}

// testDeferredAccepted: an accepted answer is not lost, however the attempt that expected it ends.
// It counts if the attempt will be repeated, and if the attempt failed permanently.
func testDeferredAccepted(t *testing.T, open Open) {
	ends := map[string]func(ctx context.Context) error{
		"retry":      func(context.Context) error { return task.Retry(nil) },
		"retry late": func(context.Context) error { return task.Retry(nil, task.After(time.Hour)) },
		"snooze":     func(context.Context) error { return task.Snooze(time.Millisecond) },
		"failure":    func(context.Context) error { return errors.New("the request has timed out") },
		"panic":      func(context.Context) error { panic("after the answer") },
		"time limit": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"exhausted": func(ctx context.Context) error {
			if req, _ := task.FromContext(ctx); req.Retries == 0 {
				return task.Retry(nil, task.After(0))
			}
			return errors.New("the next attempt has failed")
		},
	}
	a := newAsking(t, open)
	handle(a.road, ask, func(ctx context.Context, key string) (int, error) {
		if err := task.Expect(ctx, key); err != nil {
			return 0, err
		}
		a.complete("ask", key, 9, jobs.Accepted)
		return 0, ends[key](ctx)
	})
	a.start()
	fs := make(map[string]*task.Future[int])
	for key := range ends {
		fs[key] = submit(a.road, ask, key, task.WithTimeLimit(time.Second), task.WithMaxRetries(1), task.WithRetryDelay(0))
	}
	for key, f := range fs {
		if got, err := f.Get(a.ctx()); err != nil || got != 9 {
			t.Errorf("%s: the answer was accepted, and the result is %d, %v", key, got, err)
		}
		a.over(key)
		a.complete("ask", key, 7, jobs.Duplicate)
	}
}

// testDeferredGivenBack: an answer that was accepted while a stop interrupted its attempt belongs
// to the next delivery.
func testDeferredGivenBack(t *testing.T, open Open) {
	h := open(t)
	same := func(*testing.T) *Harness { return h }
	a := newAsking(t, same, func(_ *producer.Config, c *consumer.Config) { c.ShutdownTimeout = -1 })
	handle(a.road, ask, func(ctx context.Context, key string) (int, error) {
		if err := task.Expect(ctx, key); err != nil {
			return 0, err
		}
		a.asks <- key
		<-ctx.Done()
		return 0, context.Cause(ctx)
	})
	run := a.start()
	f := submit(a.road, ask, "k")
	a.asked()
	a.complete("ask", "k", 9, jobs.Accepted)
	if err := run.stop(); !errors.Is(err, consumer.ErrForced) {
		t.Fatalf("Run returned %v", err)
	}
	later := newRoad(t, same, func(_ *producer.Config, c *consumer.Config) { c.Deferrals = deferralsOf(t, a.jobs) })
	handle(later, ask, func(ctx context.Context, key string) (int, error) {
		if err := task.Expect(ctx, key); err != nil {
			return 0, err
		}
		return 0, task.Defer("")
	})
	later.start()
	want(a.road, f, 9)
}

// testDeferredKeys: while one task of a name waits for a key, no other task of that name can. A
// handler that ends without Defer no longer reserves its answer.
func testDeferredKeys(t *testing.T, open Open) {
	a := newAsking(t, open)
	a.handleAsk(a.road, ask)
	handle(a.road, fail, func(ctx context.Context, key string) (int, error) {
		if err := task.Expect(ctx, key); err != nil {
			return 0, err
		}
		return 3, nil
	})
	plain := task.New[string, int]("plain")
	handle(a.road, plain, func(context.Context, string) (int, error) { return 0, task.Defer("") })
	a.start()
	first := submit(a.road, ask, "k")
	a.asked()
	second := failure(a.road, submit(a.road, ask, "k"), nil)
	if !contains(second.Message, "key") {
		t.Errorf("the second task failed with %+v", second)
	}
	a.complete("ask", "k", 1, jobs.Accepted)
	want(a.road, first, 1)
	for range 2 {
		want(a.road, submit(a.road, fail, "same"), 3)
	}
	if err := failure(a.road, submit(a.road, plain, ""), nil); !contains(err.Message, "key") {
		t.Errorf("a task that names no key failed with %+v", err)
	}
}

// testDeferredWorkflow: in chains and in groups the tasks after a deferred one get its answer. A
// refusal fails them.
func testDeferredWorkflow(t *testing.T, open Open) {
	s, withJobs := withJobs(t)
	r := newWorks(t, open, withJobs)
	a := &asking{road: r, jobs: s, asks: make(chan string, 10)}
	number := task.New[int, int]("number")
	handle(r, number, func(ctx context.Context, n int) (int, error) {
		key := fmt.Sprint(n)
		if err := task.Expect(ctx, key); err != nil {
			return 0, err
		}
		a.asks <- key
		return 0, task.Defer(key)
	})
	r.start()
	chain := submitWork(r, task.Chain3(inc, number, inc), 1)
	a.complete("number", a.asked(), 10, jobs.Accepted)
	want(r, chain.Future, 11)

	chord := submitWork(r, task.Chord(task.Group(inc, number, task.Chain(inc, number)), sum), 5)
	for range 2 {
		key := a.asked()
		a.complete("number", key, len(key), jobs.Accepted)
	}
	want(r, chord.Future, 6+1+1)

	failing := submitWork(r, task.Chain(number, inc), 7)
	a.asked()
	if got, err := s.Reject(r.ctx(), "number", "7", errors.New("none")); err != nil || got.Kind != jobs.Accepted {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := failure(r, failing.Future, task.ErrRejected); err.Message != "none" {
		t.Errorf("the chain failed with %+v", err)
	}
}

// testDeferredElsewhere: the answer may come after the consumer that deferred the task has stopped.
// Another consumer settles the task.
func testDeferredElsewhere(t *testing.T, open Open) {
	h := open(t)
	same := func(*testing.T) *Harness { return h }
	a := newAsking(t, same)
	a.handleAsk(a.road, ask)
	a.start()
	f := submit(a.road, ask, "k")
	a.asked()
	if err := a.running.stop(); err != nil {
		t.Fatal(err)
	}
	a.complete("ask", "k", 4, jobs.Accepted)
	runs := atomic.Int64{}
	later := newRoad(t, same, func(_ *producer.Config, c *consumer.Config) { c.Deferrals = deferralsOf(t, a.jobs) })
	handle(later, ask, func(context.Context, string) (int, error) { runs.Add(1); return 0, nil })
	later.start()
	want(a.road, f, 4)
	if runs.Load() != 0 {
		t.Error("a deferred task ran again")
	}
}

// testDeferredAtMostOnce: a task that runs at most once can wait for an answer too.
func testDeferredAtMostOnce(t *testing.T, open Open) {
	a := newAsking(t, open)
	a.handleAsk(a.road, ask)
	a.start()
	f := submit(a.road, ask, "k", task.WithIdempotent(false))
	a.asked()
	a.complete("ask", "k", 8, jobs.Accepted)
	want(a.road, f, 8)
}

// testDeferredSealed: a sealed task stays sealed while it waits, and its answer is sealed as a
// result.
func testDeferredSealed(t *testing.T, open Open) {
	a := newAsking(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Wire.Sealer, c.Wire.Sealer = keyRing(t, "k1"), keyRing(t, "k1")
	})
	const secret = "the-key-that-nobody-else-may-see"
	handle(a.road, ask, func(ctx context.Context, _ string) (int, error) {
		if err := task.Expect(ctx, "k"); err != nil {
			return 0, err
		}
		a.asks <- "k"
		return 0, task.Defer("k")
	})
	a.start()
	f := submit(a.road, ask, secret)
	a.asked()
	err := a.jobs.Store().View(a.ctx(), func(ctx context.Context, tx jobstore.Tx) error {
		d, err := tx.DeferralOf(ctx, "ask", "k")
		if err == nil && (d == nil || contains(string(d.State), secret)) {
			err = errors.New("no deferral, or plain arguments")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.complete("ask", "k", 8, jobs.Accepted)
	want(a.road, f, 8)
}

// testDeferredWithoutJobs: without a job store a task that defers fails, and the error says why.
func testDeferredWithoutJobs(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, ask, func(ctx context.Context, key string) (int, error) {
		if key == "expect" {
			return 0, task.Expect(ctx, key)
		}
		return 0, task.Defer(key)
	})
	r.start()
	wantError(r, submit(r, ask, "expect"), task.ErrNoAnswers)
	wantError(r, submit(r, ask, "k", task.WithRetry(task.RetryPolicy{})), task.ErrNoAnswers)
}

// testRevokedDeferred: revoking a task that waits for an answer, by its id or by a selector, ends
// the task. Its answer is then late.
func testRevokedDeferred(t *testing.T, open Open) {
	s, withJobs := withJobs(t)
	v := newRevokable(t, open, withJobs)
	a := &asking{road: v.road, jobs: s, asks: make(chan string, 10)}
	a.handleAsk(v.road, ask)
	v.start()
	byID := submit(v.road, ask, "id")
	bySelector := submit(v.road, ask, "selector", task.WithHeader("customer", "7"))
	stays := submit(v.road, ask, "stays", task.WithHeader("customer", "8"))
	for range 3 {
		a.asked()
	}
	// before that, a revocation ends the attempt of the handler, and no deferral
	for _, key := range []string{"id", "selector", "stays"} {
		a.reached(key, jobstore.DeferralAwaiting)
	}
	v.revoke(revoke.Options{}, byID.ID())
	wantError(v.road, byID, task.ErrRevoked)
	if err := v.revoker.RevokeMatching(v.ctx(), revoke.Options{}, revoke.Selector{Header: "customer", Value: "7"}); err != nil {
		t.Fatal(err)
	}
	wantError(v.road, bySelector, task.ErrRevoked)
	a.over("id")
	a.complete("ask", "id", 1, jobs.Late)
	a.complete("ask", "stays", 2, jobs.Accepted)
	want(v.road, stays, 2)
}

// testDeferredMany: many tasks wait at once and use no slot of a small prefetch. Several goroutines
// answer them, and each task gets its own answer once.
func testDeferredMany(t *testing.T, open Open) {
	const tasks = 60
	a := newAsking(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{queueName: {Workers: 2, Prefetch: 2}}
	})
	a.handleAsk(a.road, ask)
	a.start()
	fs := make([]*task.Future[int], tasks)
	for i := range fs {
		fs[i] = submit(a.road, ask, fmt.Sprint(i))
	}
	for range fs {
		a.asked()
	}
	accepted := atomic.Int64{}
	var answering sync.WaitGroup
	for range 3 {
		answering.Go(func() {
			for i := range fs {
				got, err := a.jobs.Complete(a.ctx(), "ask", fmt.Sprint(i), i)
				if err != nil {
					t.Error(err)
				}
				if got.Kind == jobs.Accepted {
					accepted.Add(1)
				}
			}
		})
	}
	answering.Wait()
	for i, f := range fs {
		want(a.road, f, i)
	}
	if n := accepted.Load(); n != tasks {
		t.Errorf("%d of %d answers were accepted", n, tasks)
	}
}
