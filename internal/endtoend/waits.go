package endtoend

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// nap is the length of the sleeps in these tests.
const nap = 20 * time.Millisecond

// waiting is a road whose task "ask" sleeps and waits for two answers, "KEY-1" and "KEY-2".
type waiting struct {
	*asking
	keeps bool // its store keeps checkpoints

	mu    sync.Mutex
	parts []string // the parts of handlers that ran, each once
}

// newWaiting returns a road whose consumer is not started.
func newWaiting(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) *waiting {
	t.Helper()
	w := &waiting{asking: newAsking(t, open, change...)}
	_, w.keeps = capability.As[resultstore.Checkpointer](w.results)
	handle(w.road, ask, w.handle)
	return w
}

// needsStore skips the test without a store that keeps checkpoints.
func (w *waiting) needsStore() {
	w.t.Helper()
	if !w.keeps {
		w.t.Skip("the store keeps no checkpoints")
	}
}

// handle is the handler of ask. Its result is the sum of the answers.
func (w *waiting) handle(ctx context.Context, key string) (int, error) {
	part := func(name string) func(context.Context) (int, error) {
		return func(context.Context) (int, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.parts = append(w.parts, key+" "+name)
			return len(w.parts), nil
		}
	}
	if _, err := task.Checkpoint(ctx, "begin", part("begin")); err != nil {
		return 0, err
	}
	if err := task.Sleep(ctx, "first nap", nap); err != nil {
		return 0, err
	}
	one, err := task.Await[int](ctx, "one", key+"-1", task.Requesting(func(context.Context) error {
		w.asks <- key + "-1"
		return nil
	}))
	if err != nil {
		return 0, err
	}
	if _, err := task.Checkpoint(ctx, "middle", part("middle")); err != nil {
		return 0, err
	}
	if err := task.Sleep(ctx, "second nap", nap); err != nil {
		return 0, err
	}
	two, err := task.Await[int](ctx, "two", key+"-2", task.AnswerWithin(time.Hour))
	if err != nil {
		return 0, err
	}
	return one + two, nil
}

// ran fails the test unless these parts of handlers ran.
func (w *waiting) ran(parts ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if fmt.Sprint(w.parts) != fmt.Sprint(parts) {
		w.t.Errorf("these parts ran: %q, want %q", w.parts, parts)
	}
	w.parts = nil
}

// testWaits: a task sleeps and waits for answers several times, before and after the answer has
// come. It holds no worker meanwhile, and no part of it runs again.
func testWaits(t *testing.T, open Open) {
	w := newWaiting(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{queueName: {Workers: 1, Prefetch: 1}}
	})
	double := task.New[int, int]("double")
	handle(w.road, double, func(_ context.Context, i int) (int, error) { return 2 * i, nil })
	w.start()
	if !w.keeps {
		failed := failure(w.road, submit(w.road, ask, "k"), nil)
		if !contains(failed.Message, "keep no checkpoints") {
			t.Errorf("without a store that keeps checkpoints the task ended with %+v", failed)
		}
		return
	}
	for key, opts := range map[string][]task.Option{"k": nil, "once": {task.WithIdempotent(false)}} {
		f := submit(w.road, ask, key, opts...)
		if got := w.asked(); got != key+"-1" {
			t.Fatalf("asked for %s", got)
		}
		want(w.road, submit(w.road, double, 4), 8) // by the only worker
		w.complete("ask", key+"-2", 2, jobs.Early)
		w.reached(key+"-1", jobstore.DeferralAwaiting)
		w.complete("ask", key+"-1", 40, jobs.Accepted)
		want(w.road, f, 42)
		w.ran(key+" begin", key+" middle")
	}
}

// testWaitsSealed: answers and times are sealed as results are.
func testWaitsSealed(t *testing.T, open Open) {
	ring := keyRing(t, "one")
	w := newWaiting(t, open, func(p *producer.Config, c *consumer.Config) { p.Wire.Sealer, c.Wire.Sealer = ring, ring })
	w.needsStore()
	w.start()
	f := submit(w.road, ask, "k")
	w.complete("ask", w.asked(), 40, jobs.Accepted)
	w.complete("ask", "k-2", 2, jobs.Early)
	want(w.road, f, 42)
	w.ran("k begin", "k middle")
}

// testWaitRefused: a refusal is the error of Await, and a later life waits again.
func testWaitRefused(t *testing.T, open Open) {
	w := newWaiting(t, open)
	w.needsStore()
	w.start()
	f := submit(w.road, ask, "k")
	w.asked()
	w.refuse("k-1", "no stock")
	if err := failure(w.road, f, task.ErrRejected); err.Message != "no stock" {
		t.Errorf("refused with %+v", err)
	}
	w.wantDead(string(f.ID()), "no stock")
	l, _ := w.letters(w.broker, nil)
	if rep := w.requeue(l, f.ID()); rep.Done != 1 {
		t.Fatalf("report %+v", rep)
	}
	w.complete("ask", w.asked(), 40, jobs.Accepted)
	w.complete("ask", "k-2", 2, jobs.Early)
	if p := w.pendingElsewhere(f.ID(), nil); p != nil {
		want(w.road, task.FutureOf[int](p), 42)
	}
	w.ran("k begin", "k middle")
}

// testWaitElsewhere: a task sleeps and waits while all consumers are stopped, and continues in
// another one.
func testWaitElsewhere(t *testing.T, open Open) {
	h := open(t)
	same := func(*testing.T) *Harness { return h }
	w := newWaiting(t, same)
	w.needsStore()
	running := w.start()
	f := submit(w.road, ask, "k")
	w.asked()
	w.reached("k-1", jobstore.DeferralAwaiting)
	if err := running.stop(); err != nil {
		t.Fatal(err)
	}
	w.complete("ask", "k-1", 40, jobs.Accepted)
	later := newRoad(t, same, func(_ *producer.Config, c *consumer.Config) { c.Deferrals = deferralsOf(t, w.jobs) })
	handle(later, ask, w.handle)
	second := later.start()
	w.eventually("the second part has run", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.parts) == 2
	})
	if err := second.stop(); err != nil { // during the second nap, or soon after it
		t.Fatal(err)
	}
	last := newRoad(t, same, func(_ *producer.Config, c *consumer.Config) { c.Deferrals = deferralsOf(t, w.jobs) })
	handle(last, ask, w.handle)
	last.start()
	w.reached("k-2", jobstore.DeferralAwaiting)
	w.complete("ask", "k-2", 2, jobs.Accepted)
	want(w.road, f, 42)
	w.ran("k begin", "k middle")
}

// testWaitSevered: a task continues after its sleep although the connection of its consumer was
// lost meanwhile.
func testWaitSevered(t *testing.T, open Open) {
	var side broker.Broker
	w := newWaiting(t, open, func(_ *producer.Config, c *consumer.Config) { side = c.Broker })
	w.needsStore()
	if w.h.Sever == nil {
		t.Skip("this harness cannot cut connections")
	}
	sleeper := task.New[int, int]("sleeper")
	ran := make(chan struct{}, 100)
	handle(w.road, sleeper, func(ctx context.Context, n int) (int, error) {
		ran <- struct{}{}
		return n, task.Sleep(ctx, "nap", time.Second)
	})
	w.start()
	f := submit(w.road, sleeper, 3)
	<-ran
	w.h.Sever(t, side)
	want(w.road, f, 3)
}

// testRevokedWaits: a task that is revoked while it sleeps, or while it waits for an answer, ends
// without another attempt.
func testRevokedWaits(t *testing.T, open Open) {
	s, withJobs := withJobs(t)
	v := newRevokable(t, open, withJobs)
	if _, keeps := capability.As[resultstore.Checkpointer](v.results); !keeps {
		t.Skip("the store keeps no checkpoints")
	}
	a := &asking{road: v.road, jobs: s, asks: make(chan string, 10)}
	attempts := make(chan string, 10)
	handle(v.road, ask, func(ctx context.Context, how string) (int, error) {
		attempts <- how
		if how == "sleep" {
			return 0, task.Sleep(ctx, "nap", time.Second)
		}
		return task.Await[int](ctx, "answer", "k")
	})
	v.start()
	asleep, awaiting := submit(v.road, ask, "sleep"), submit(v.road, ask, "await")
	for range 2 {
		<-attempts
	}
	a.reached("k", jobstore.DeferralAwaiting)
	for _, f := range []*task.Future[int]{asleep, awaiting} {
		v.revoke(revoke.Options{}, f.ID())
	}
	for _, f := range []*task.Future[int]{asleep, awaiting} {
		wantError(v.road, f, task.ErrRevoked)
	}
	a.over("k")
	a.complete("ask", "k", 1, jobs.Late)
	if len(attempts) != 0 {
		t.Errorf("there was another attempt: %s", <-attempts)
	}
}
