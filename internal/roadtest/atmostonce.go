package roadtest

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

// faultyBroker is a broker some of whose calls end with an error. What a function is nil for works as ever.
type faultyBroker struct {
	broker.Broker
	ackSync func(d broker.Delivery) (error, bool)            // in the place of AckSync; false: not
	publish func(m *broker.Message) (err error, before bool) // of PublishAt; before: nothing is published
}

// Unwrap lets the optional interfaces of the broker be found.
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

// awayStore is a store that cannot be reached while away is set.
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

// early is work that runs at most once.
func early() task.Task[int, int] { return work.With(task.WithIdempotent(false)) }

// testEarlyBound: while results cannot be stored, at most as many tasks that were acknowledged before their start are unsettled
// as the prefetch, and no further one starts. None is lost.
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
	for range 200 { // and it stays so
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

// testEarlyAckUnknown: a task whose early acknowledgement has an unknown outcome is uncertain. It is not started, it is
// recorded and a dead letter, and its place is free again.
func testEarlyAckUnknown(t *testing.T, open Open) {
	for name, answer := range map[string]error{
		"held": fmt.Errorf("the answer is lost: %w", broker.ErrIndeterminate),
		// The lease ended while the answer was waited for: the broker may have done it, and has no delivery any more.
		"lease lost": fmt.Errorf("%w: the answer is lost: %w", broker.ErrLeaseLost, broker.ErrIndeterminate),
	} {
		t.Run(name, func(t *testing.T) { earlyAckUnknown(t, open, answer) })
	}
}

func earlyAckUnknown(t *testing.T, open Open, answer error) {
	const n = 12 // more than the prefetch
	b := &faultyBroker{ackSync: func(d broker.Delivery) (error, bool) {
		if !strings.HasPrefix(d.Message().ID, "unknown-") {
			return nil, false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = broker.AckSync(ctx, d) // it was executed, and nobody hears of it
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
}

// testEarlyRetryUnknown: the retry of a task that runs at most once is not sent a second time after an unknown outcome, and no
// attempt runs twice. The task ends, and is a dead letter. A retry that was sent all the same is its next attempt.
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

// counts counts by number.
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

// wantOnce demands that there were some, and each once.
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

// testEarlyNotSettled: a task that runs at most once and whose result cannot be stored for longer than StoreRetry is kept as a
// dead letter, with its arguments and the reason, and frees its place.
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

// testEarlyHeldOnly: a cut connection costs no task that runs at most once and was only held. Each runs once.
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
	if r.h.KeepsHeld { // what is on its way when the line is cut comes back with its lease only
		r.eventually("the consumer holds all", func() bool { return r.consumer.Stats().Reserved == n-1 })
	}
	cut := noticed(side)
	r.h.Sever(t, side)
	if !r.h.KeepsHeld { // else it goes on as before
		r.eventually("the consumer has noticed the cut", cut) // else it may be acknowledging the next one
	}
	close(release)
	for i, f := range fs {
		want(r, f, i)
		if c := runs[i].Load(); c != 1 {
			t.Errorf("task %d ran %d times", i, c)
		}
	}
}

// noticed returns whether a broker has noticed since that its connection is lost. One that does not tell has.
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

// testFailedIsKept: a task that failed for good, or is out of retries, is among the dead letters with its message, its error and
// its attempts, whatever it was acknowledged; one that says so is only recorded.
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
