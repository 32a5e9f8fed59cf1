package endtoend

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// faultyBroker is a broker whose calls may end with an error. A nil function leaves the broker's
// own behavior unchanged.
type faultyBroker struct {
	broker.Broker
	ackSync func(d broker.Delivery) (error, bool) // replaces AckSync; false: it does not
	// result of PublishAt; before: the message is not published
	publish func(m *broker.Message) (err error, before bool)
	lost    chan struct{} // replaces Lost of deliveries with ackSync; nil: it does not
}

// Unwrap makes the optional interfaces of the broker available.
func (b *faultyBroker) Unwrap() any { return b.Broker }

func (b *faultyBroker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.PublishAt(ctx, queue, m, time.Time{})
}

func (b *faultyBroker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	var fault error
	if b.publish != nil {
		err, before := b.publish(m)
		if before {
			return err
		}
		fault = err
	}
	if err := broker.PublishAt(ctx, b.Broker, broker.Outgoing{Queue: queue, Message: m, At: at}); err != nil {
		return err
	}
	return fault
}

func (b *faultyBroker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, queue, o)
	if err != nil || b.ackSync == nil {
		return s, err
	}
	return &faultySubscription{s, b}, nil
}

type faultySubscription struct {
	broker.Subscription
	b *faultyBroker
}

func (s *faultySubscription) Unwrap() any { return s.Subscription }

func (s *faultySubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyDelivery{d, s.b}, nil
}

type faultyDelivery struct {
	broker.Delivery
	b *faultyBroker
}

func (d *faultyDelivery) Unwrap() any { return d.Delivery }

func (d *faultyDelivery) AckSync(ctx context.Context) error {
	if err, instead := d.b.ackSync(d.Delivery); instead {
		return err
	}
	return broker.AckSync(ctx, d.Delivery)
}

func (d *faultyDelivery) Lost() <-chan struct{} {
	if d.b.lost == nil {
		return d.Delivery.Lost()
	}
	return d.b.lost
}

// awayStore is a store that fails as unreachable while away is set.
type awayStore struct {
	resultstore.ResultStore
	away atomic.Bool
}

func (s *awayStore) Save(ctx context.Context, r resultstore.Record) error {
	if s.away.Load() {
		return fmt.Errorf("store: %w", resultstore.ErrUnavailable)
	}
	return s.ResultStore.Save(ctx, r)
}

// early returns the task work configured to run at most once.
func early() task.Task[int, int] { return work.With(task.WithIdempotent(false)) }

// testEarlyBound: while results cannot be stored, the number of unsettled tasks that were
// acknowledged before their start stays within the prefetch. Further tasks do not start. No task is
// lost.
func testEarlyBound(t *testing.T, open Open) {
	const prefetch, n = 5, 40
	var store *awayStore
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 2, Prefetch: prefetch}
		store = &awayStore{ResultStore: c.Results}
		c.Results = store
	})
	store.away.Store(true)
	var runs [n]atomic.Int64
	var started atomic.Int64
	handle(r, work, func(_ context.Context, i int) (int, error) {
		runs[i].Add(1)
		started.Add(1)
		return i, nil
	})
	fs := make([]*task.Future[int], n)
	for i := range fs {
		fs[i] = submit(r, early(), i)
	}
	r.start()
	r.eventually("as many start as may be unsettled", func() bool { return started.Load() >= prefetch })
	for range 200 { // and the number stays within the limit
		if s := started.Load(); s > prefetch {
			t.Fatalf("%d tasks that were acknowledged early are unsettled, at most %d may be", s, prefetch)
		}
		yield()
	}
	store.away.Store(false)
	for i, f := range fs {
		want(r, f, i)
		if c := runs[i].Load(); c != 1 {
			t.Errorf("task %d ran %d times", i, c)
		}
	}
}

// testEarlyAckUnknown: a task whose early acknowledgement has an unknown outcome is uncertain. It
// is not started. It is recorded and becomes a dead letter, and its prefetch slot is free again.
func testEarlyAckUnknown(t *testing.T, open Open) {
	for name, answer := range map[string]error{
		"held": fmt.Errorf("the answer is lost: %w", broker.ErrIndeterminate),
		// The lease ended during the wait for the answer: the broker may have acknowledged the delivery
		// and no longer has it.
		"lease lost": fmt.Errorf("%w: the answer is lost: %w", broker.ErrLeaseLost, broker.ErrIndeterminate),
	} {
		t.Run(name, func(t *testing.T) { earlyAckUnknown(t, open, answer) })
	}
}

func earlyAckUnknown(t *testing.T, open Open, answer error) {
	const n = 12 // more than the prefetch
	b := &faultyBroker{lost: make(chan struct{}), ackSync: func(d broker.Delivery) (error, bool) {
		if !strings.HasPrefix(d.Message().ID, "unknown-") {
			return nil, false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = broker.AckSync(ctx, d) // the broker executes it, but the answer is lost
		return answer, true
	}}
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 2, Prefetch: 4}
		b.Broker, c.Broker, c.Tuning.StoreRetry = c.Broker, b, 500*time.Millisecond
	})
	var runs atomic.Int64
	handle(r, work, func(_ context.Context, i int) (int, error) {
		runs.Add(1)
		return i, nil
	})
	var fs []*task.Future[int]
	for i := range n {
		fs = append(fs, submit(r, early(), i, task.WithID(task.ID(fmt.Sprintf("unknown-%d", i)))))
	}
	last := submit(r, early(), 100)
	r.start()
	for _, f := range fs {
		wantError(r, f, task.ErrUncertain)
	}
	want(r, last, 100)
	if runs.Load() != 1 {
		t.Errorf("%d runs; only the task whose acknowledgement was answered may start", runs.Load())
	}
	for i := range n {
		r.wantDead(fmt.Sprintf("unknown-%d", i), "at most once")
	}
	// The consumer repeats the acknowledgements until the leases end, or for 10 s after its stop.
	close(b.lost)
}

// testEarlyRetryUnknown: the retry of a task that runs at most once is not sent again after an
// unknown outcome. No attempt runs twice. The task ends and becomes a dead letter. If the retry was
// sent after all, it is the task's next attempt.
func testEarlyRetryUnknown(t *testing.T, open Open) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent=%t", sent), func(t *testing.T) {
			var sendings, attempts counts
			b := &faultyBroker{publish: func(m *broker.Message) (error, bool) {
				sendings.add(m.Generation)
				return fmt.Errorf("the answer is lost: %w", broker.ErrIndeterminate), !sent
			}}
			r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { b.Broker, c.Broker = c.Broker, b })
			handle(r, work, func(ctx context.Context, _ int) (int, error) {
				req, _ := task.FromContext(ctx)
				attempts.add(req.Retries)
				return 0, task.Retry(errBroken, task.After(0))
			})
			f := submit(r, early(), 1)
			r.start()
			if sent {
				_ = failure(r, f, nil)
			} else {
				wantError(r, f, task.ErrUncertain)
			}
			r.wantDead(string(f.ID()), "")
			sendings.wantOnce(t, "retry")
			attempts.wantOnce(t, "attempt")
		})
	}
}

// counts counts events by number.
type counts struct {
	mu sync.Mutex
	of map[int]int
}

func (c *counts) add(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[int]int)
	}
	c.of[i]++
}

// wantOnce fails the test unless at least one number was counted and each of them once.
func (c *counts) wantOnce(t *testing.T, what string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.of) == 0 {
		t.Errorf("no %s", what)
	}
	for i, n := range c.of {
		if n != 1 {
			t.Errorf("%s %d: %d times, want once", what, i, n)
		}
	}
}

// testEarlyNotSettled: a task that runs at most once may fail to store its result for longer than
// StoreRetry. It becomes a dead letter with its arguments and the reason, and its prefetch slot is
// free again.
func testEarlyNotSettled(t *testing.T, open Open) {
	var store *awayStore
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Prefetch: 1}
		store = &awayStore{ResultStore: c.Results}
		c.Results, c.Tuning.StoreRetry = store, 200*time.Millisecond
	})
	store.away.Store(true)
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	submit(r, early(), 1, task.WithID("first"))
	submit(r, early(), 2, task.WithID("second"))
	r.start()
	for _, id := range []string{"first", "second"} {
		d := r.wantDead(id, "result")
		if len(d.Message.Body) == 0 {
			t.Errorf("the dead letter of %s is empty", id)
		}
	}
	store.away.Store(false)
	want(r, submit(r, early(), 3), 3)
}

// testEarlyHeldOnly: a cut connection loses no task that runs at most once and was only held. Each
// task runs once.
func testEarlyHeldOnly(t *testing.T, open Open) {
	const n = 30
	var side broker.Broker
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Prefetch: n}
		side = c.Broker
	})
	if r.h.Sever == nil {
		t.Skip("this harness cannot cut connections")
	}
	var runs [n]atomic.Int64
	first, release := make(chan struct{}, n), make(chan struct{})
	handle(r, work, func(_ context.Context, i int) (int, error) {
		runs[i].Add(1)
		first <- struct{}{}
		<-release
		return i, nil
	})
	fs := make([]*task.Future[int], n)
	for i := range fs {
		fs[i] = submit(r, early(), i)
	}
	r.start()
	<-first
	// a message that is in transit at the cut comes back only with the end of its lease
	if r.h.KeepsHeld {
		r.eventually("the consumer holds all", func() bool { return r.consumer.Stats().Reserved == n-1 })
	}
	cut := noticed(side)
	r.h.Sever(t, side)
	if !r.h.KeepsHeld { // otherwise it continues as before
		// otherwise it may be acknowledging the next task
		r.eventually("the consumer has noticed the cut", cut)
	}
	close(release)
	for i, f := range fs {
		want(r, f, i)
		if c := runs[i].Load(); c != 1 {
			t.Errorf("task %d ran %d times", i, c)
		}
	}
}

// noticed returns a function that reports whether the broker has noticed since this call that its
// connection is lost. For a broker that cannot tell, the function returns true.
func noticed(b broker.Broker) func() bool {
	w, ok := capability.As[broker.Watcher](b)
	if !ok {
		return func() bool { return true }
	}
	var lost atomic.Bool
	w.Watch(func(s broker.ConnState, _ error) {
		if s == broker.Disconnected {
			lost.Store(true)
		}
	})
	return lost.Load
}

// testFailedIsKept: a task that failed permanently or used up its retries is a dead letter with its
// message, error and attempts. That does not depend on when it was acknowledged. A task that opts
// out is only recorded.
func testFailedIsKept(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, work, func(_ context.Context, i int) (int, error) {
		if i == 2 {
			panic("out of order")
		}
		return 0, task.Retry(errBroken, task.After(0), task.AtMost(i))
	})
	r.start()
	keep := []struct {
		id       string
		def      task.Task[int, int]
		arg      int
		attempts int
		reason   string
	}{
		{"late-1", work, 1, 2, errBroken.Error()},
		{"early-1", early(), 1, 2, errBroken.Error()},
		{"late-0", work, 0, 1, errBroken.Error()},
		{"panic", work, 2, 1, "out of order"},
		{"early-panic", early(), 2, 1, "out of order"},
	}
	for _, k := range keep {
		f := submit(r, k.def, k.arg, task.WithID(task.ID(k.id)), task.WithHeader("tenant", "a"))
		_ = failure(r, f, nil)
	}
	gone := submit(r, work, 0, task.WithID("gone"), task.WithDeadLetter(false))
	_ = failure(r, gone, nil)
	for _, k := range keep {
		d := r.wantDead(k.id, k.reason)
		if r.h.Reasonless {
			continue
		}
		if d.Attempts != k.attempts {
			t.Errorf("%s: %d attempts, want %d", k.id, d.Attempts, k.attempts)
		}
		if k.arg == 2 && !strings.Contains(d.Stack, "goroutine") {
			t.Errorf("%s: the stack is %q", k.id, d.Stack)
		}
	}
	if r.isDead("gone") {
		t.Error("a task without dead letters has one")
	}
}
