package endtoend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testStopWaits: a stop lets running tasks end, and Run returns nil.
func testStopWaits(t *testing.T, open Open) {
	r := newRoad(t, open)
	started, release := make(chan struct{}), make(chan struct{})
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		close(started)
		<-release
		return i, ctx.Err() // a soft stop does not cancel the handler's context
	})
	run := r.start()
	result := make(chan *task.Future[int], 1)
	go func() { result <- submit(r, work, 8) }() // a broker that runs the task at once returns late
	<-started
	run.cancel()
	close(release)
	if err := run.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	want(r, <-result, 8)
	if err := r.consumer.Run(t.Context()); !errors.Is(err, consumer.ErrRunning) {
		t.Fatalf("a second Run: %v", err)
	}
}

// second starts another consumer on the same queue.
func (r *road) second(register func(c *consumer.Consumer)) *running {
	r.t.Helper()
	h := r.h
	b, results := h.Broker(r.t), h.Results(r.t)
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Queues: map[string]consumer.QueueConfig{queueName: {Workers: 4}}})
	if err != nil {
		r.t.Fatal(err)
	}
	register(c)
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{t: r.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.err = c.Run(ctx)
	}()
	r.t.Cleanup(func() {
		if err := run.stop(); err != nil {
			r.t.Errorf("second consumer: %v", err)
		}
		_ = results.Close(context.Background())
		_ = b.Close(context.Background())
	})
	return run
}

// testStopForced: a handler that outlives the grace period has its context cancelled. Its task goes
// back without a counted attempt and runs elsewhere, and Run reports that (fault 5). A handler that
// ignores its context too is left running.
func testStopForced(t *testing.T, open Open) {
	for _, obeys := range []bool{true, false} {
		t.Run(fmt.Sprintf("obeys=%t", obeys), func(t *testing.T) {
			r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
				c.ShutdownTimeout, c.Tuning.KillGrace = -1, 200*time.Millisecond
			})
			started, release := make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(release) })
			handle(r, work, func(ctx context.Context, _ int) (int, error) {
				close(started)
				if obeys {
					<-ctx.Done()
					return 0, context.Cause(ctx)
				}
				<-release
				return 0, nil
			})
			run := r.start()
			f := submit(r, work, 8)
			<-started
			if err := run.stop(); !errors.Is(err, consumer.ErrForced) {
				t.Fatalf("Run returned %v", err)
			}
			r.second(func(c *consumer.Consumer) {
				if err := work.Handle(c, func(ctx context.Context, i int) (int, error) {
					req, _ := task.FromContext(ctx)
					return i + req.Retries, nil
				}); err != nil {
					t.Fatal(err)
				}
			})
			want(r, f, 8)
		})
	}
}

// testStopGivesBack: tasks that were fetched and not started go back at once and run elsewhere,
// once (fault 45).
func testStopGivesBack(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Prefetch: 100}
	})
	started, release := make(chan struct{}, 1), make(chan struct{})
	const n = 100
	var runs [n]atomic.Int64
	handle(r, work, func(_ context.Context, i int) (int, error) {
		runs[i].Add(1)
		started <- struct{}{}
		<-release
		return i, nil
	})
	fs := make([]*task.Future[int], n)
	for i := range fs {
		fs[i] = submit(r, work, i)
	}
	run := r.start()
	<-started
	run.cancel()
	r.second(func(c *consumer.Consumer) {
		if err := work.Handle(c, func(_ context.Context, i int) (int, error) {
			runs[i].Add(1)
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	for i, f := range fs[1:] { // while the first consumer still waits for its running task
		want(r, f, i+1)
	}
	close(release)
	if err := run.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	want(r, fs[0], 0)
	for i := range runs {
		if c := runs[i].Load(); c != 1 {
			t.Errorf("task %d ran %d times", i, c)
		}
	}
}

// testKill: a second signal ends the consumer without waiting (fault 6).
func testKill(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.ShutdownTimeout = time.Hour })
	started := make(chan struct{})
	handle(r, work, func(ctx context.Context, _ int) (int, error) {
		close(started)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), task.ErrShutdown) {
			t.Errorf("the context ended with %v", context.Cause(ctx))
		}
		return 0, ctx.Err()
	})
	run := r.start()
	submit(r, work, 1)
	<-started
	run.cancel()
	r.consumer.Kill()
	if err := run.stop(); !errors.Is(err, consumer.ErrForced) {
		t.Fatalf("Run returned %v", err)
	}
}

// testSeverInMidTask: when the broker takes a running task back, its context ends with
// ErrLeaseLost, the task runs again, and the submitter gets one result (G4). The consumer lives and
// knows of the loss, so that never counts as a crash.
func testSeverInMidTask(t *testing.T, open Open) {
	var side broker.Broker
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { side, c.Metrics = c.Broker, m })
	if r.h.Sever == nil {
		t.Skip("this harness cannot cut connections")
	}
	if r.h.KeepsHeld {
		t.Skip("the broker takes nothing back when connections are cut")
	}
	const cuts = 4
	starts := make(chan struct{}, 100) // a cut in the middle of a replacement leaves an extra copy
	causes := make(chan error, 100)
	var runs atomic.Int64
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		n := runs.Add(1)
		starts <- struct{}{}
		if n <= cuts {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return 0, ctx.Err()
		}
		return i, nil
	})
	r.start()
	f := submit(r, work, 40)
	for range cuts {
		<-starts
		r.h.Sever(t, side)
		if err := <-causes; !errors.Is(err, task.ErrLeaseLost) {
			t.Fatalf("a run's context ended with %v", err)
		}
	}
	want(r, f, 40)
	// A cut in the middle of a replacement leaves an extra copy. At the next cut that copy may be
	// fetched and not started, and no record shows that this process held it.
	repeated := strings.Count(r.log.String(), "a step of a settlement failed; it is repeated")
	if n := int(m.Crashes.Count()); n > repeated {
		t.Fatalf("%d cuts, of which %d hit a replacement, were counted as %d crashes", cuts, repeated, n)
	}
}
