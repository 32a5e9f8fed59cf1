package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/task"
)

// TestRequeueForeign shows that the dead letter of a foreign writer, with its id only in the
// message, can be requeued.
func TestRequeueForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		var fixed atomic.Bool
		def := task.New[int, int]("bad")
		if err := def.Handle(b.c, func(_ context.Context, i int) (int, error) {
			if fixed.Load() {
				return i, nil
			}
			return 0, task.Fail(errors.New("broken"))
		}); err != nil {
			t.Fatal(err)
		}
		conn := b.server.Connect()
		_ = conn.Declare(t.Context(), broker.Queue{Name: "default"})
		if err := conn.Publish(t.Context(), "default", &broker.Message{ID: "ext-1", ContentType: "application/json", Body: []byte(`{"task":"bad","args":5}`)}); err != nil {
			t.Fatal(err)
		}
		b.run()
		time.Sleep(time.Minute)
		t.Logf("before: %s, %+v", b.rec(t, "ext-1").State, b.stats(t))
		fixed.Store(true)
		t.Logf("requeue: %+v", b.requeueAll(t))
		time.Sleep(time.Minute)
		if rec := b.rec(t, "ext-1"); rec.State != task.StateSucceeded {
			t.Errorf("the handler has succeeded; the record says %s (life %d), %+v", rec.State, rec.Life, b.stats(t))
		}
		b.end()
	})
}

// TestRequeueRefusedByTheBroker shows that the record of a requeued task holds the reason if the
// broker refuses its message.
func TestRequeueRefusedByTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		def := task.New[int, int]("bad")
		if err := def.Handle(b.c, func(_ context.Context, i int) (int, error) { return 0, task.Fail(errors.New("broken")) }); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w := &wrapped{Broker: b.server.Connect(), publish: func(context.Context, broker.Outgoing, func() error) error { return broker.ErrTooLarge }}
		l, err := deadletter.New(deadletter.Config{Broker: w, Results: b.store})
		if err != nil {
			t.Fatal(err)
		}
		rep, err := l.Requeue(t.Context(), "default", deadletter.Filter{})
		t.Logf("%+v %v", rep, err)
		if rec := b.rec(t, "x"); rec.State != task.StateRequeued || rec.Error == nil || !strings.Contains(rec.Error.Message, "too large") {
			t.Errorf("the record says %q, error %v; want why the new life does not begin", rec.State, rec.Error)
		}
		b.end()
	})
}

// TestRetryBlockedAtMostOnce shows that an at-most-once task whose retry cannot be sent for longer
// than StoreRetry fails, and that its followers learn it. Its queue is full; the store and dead
// letters work.
func TestRetryBlockedAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wrapped{}
		until := time.Now().Add(5 * time.Minute)
		b := newTable(t, func(c *consumer.Config) {
			w.Broker = c.Broker
			w.publish = func(_ context.Context, o broker.Outgoing, do func() error) error {
				if o.Message.ID == "first" && time.Now().Before(until) {
					return broker.ErrBlocked
				}
				return do()
			}
			c.Broker = w
		})
		b.run()
		c := echo.Call(-1, task.WithID("first"), task.WithIdempotent(false), task.WithMaxRetries(3))
		c.Then = []task.Link{{ID: "second", Name: "echo"}}
		c.Else = []task.Link{{ID: "on-error", Name: "echo"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
		defer cancel()
		_, err1 := task.FutureOf[int](b.p.Pending("first")).Get(ctx)
		_, err2 := task.FutureOf[int](b.p.Pending("second")).Get(ctx)
		synctest.Wait() // until the error task has run
		_, err3 := b.store.Load(t.Context(), "on-error")
		t.Logf("first: %v; runs %d, %+v", err1, b.runs.Load(), b.stats(t))
		if err2 == nil || errors.Is(err2, context.DeadlineExceeded) || err3 != nil {
			t.Errorf("first has failed (%v), and 10 h later nobody has told the step after it (%v), nor run the error task (%v)", err1, err2, err3)
		}
		b.end()
	})
}

// TestNoAccessToDeadLetters shows that a failed task without a record does not run again on a
// broker that does not let this user write dead letters.
func TestNoAccessToDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		b := newTable(t, func(c *consumer.Config) { c.Broker = noAccess(c.Broker) })
		def := task.New[int, int]("bad", task.WithIgnoreResult(true))
		if err := def.Handle(b.c, func(_ context.Context, i int) (int, error) { runs.Add(1); return 0, task.Fail(errors.New("for good")) }); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if runs.Load() != 1 {
			t.Errorf("a task that failed for good ran %d times within an hour", runs.Load())
		}
		b.end()
	})
}

// TestRequeueWithoutTheStore shows that a task that was requeued without its result store runs once
// more, and that its success is stored. The consumer knows the store.
func TestRequeueWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		var fixed atomic.Bool
		var runs atomic.Int64
		def := task.New[int, int]("bad")
		if err := def.Handle(b.c, func(_ context.Context, i int) (int, error) {
			runs.Add(1)
			if fixed.Load() {
				return i, nil
			}
			return 0, task.Fail(errors.New("broken"))
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 5, task.WithID("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		fixed.Store(true)
		l, err := deadletter.New(deadletter.Config{Broker: b.server.Connect()})
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := l.Requeue(t.Context(), "default", deadletter.Filter{}); err != nil || rep.Done != 1 || rep.Unfenced != 1 {
			t.Fatalf("%+v, %v", rep, err)
		}
		time.Sleep(time.Minute)
		if rec := b.rec(t, "x"); rec.State != task.StateSucceeded || runs.Load() != 2 || b.stats(t).Dead != 0 {
			t.Errorf("the record says %s after %d runs, %+v", rec.State, runs.Load(), b.stats(t))
		}
		b.end()
	})
}

// TestAttemptsAfterARedelivery shows that a dead letter counts the recorded attempt, if the
// connection was cut between the record and the dead letter.
func TestAttemptsAfterARedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		var b *table
		b = newTable(t, func(c *consumer.Config) {
			conn := c.Broker.(*membroker.Broker)
			c.Broker = deliveries{conn, func(d broker.Delivery) broker.Delivery {
				return cutAtBury{d, func() bool {
					if cut.Swap(true) {
						return false
					}
					b.server.Disconnect(conn)
					return true
				}}
			}}
		})
		def := task.New[int, int]("bad")
		var runs atomic.Int64
		if err := def.Handle(b.c, func(context.Context, int) (int, error) { runs.Add(1); return 0, task.Fail(errors.New("for good")) }); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		letters, err := broker.ListDead(t.Context(), b.server.Connect(), "default", 10)
		if err != nil || len(letters) != 1 || letters[0].Attempts != 1 || runs.Load() != 1 {
			t.Errorf("after %d runs: letters %+v, %v; want one of 1 attempt", runs.Load(), letters, err)
		}
		b.end()
	})
}

// cutAtBury is a delivery that cuts the connection before it is dead-lettered while cut returns
// true.
type cutAtBury struct {
	broker.Delivery
	cut func() bool
}

func (d cutAtBury) Unwrap() any { return d.Delivery }

func (d cutAtBury) DeadLetter(ctx context.Context, dead broker.Dead) error {
	if d.cut() {
		return broker.ErrLeaseLost
	}
	return d.Delivery.DeadLetter(ctx, dead)
}
