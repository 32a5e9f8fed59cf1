package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// mortalJobs is the job store of a process that may die.
type mortalJobs struct {
	jobs.Store
	life *life
}

func (s mortalJobs) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return s.told(func() error { return s.Store.Update(ctx, fn) })
}

func (s mortalJobs) Single(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return s.told(func() error { return s.Store.Single(ctx, fn) })
}

func (s mortalJobs) View(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	if s.life.over() {
		return jobs.ErrUnavailable
	}
	return s.Store.View(ctx, fn) // a view changes no data, so a death after it would show nothing
}

func (s mortalJobs) told(do func() error) error {
	err := s.life.step(do)
	if errors.Is(err, broker.ErrUnavailable) {
		return jobs.ErrUnavailable
	}
	return err
}

// TestDeferredTaskOutlivesConsumers kills a consumer before and after each step that it takes with
// one task. The task waits for an answer, is refused, is retried, is answered, and has a successor.
// The next consumer brings the task to the same end.
func TestDeferredTaskOutlivesConsumers(t *testing.T) {
	for dieAt := int64(1); dieAt <= 14; dieAt++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprint(dieAt, before), func(t *testing.T) {
				t.Parallel()
				d := outlive(t, newLife(dieAt, before), (*dying).expect)
				if n := d.asked.Load(); n < 2 || n > 4 {
					t.Errorf("asked %d times", n)
				}
			})
		}
	}
}

// dying holds the parts of the test other than its consumers.
type dying struct {
	t       *testing.T
	handler func(d *dying, ctx context.Context, key string) (int, error) // of mortalAsk
	server  *membroker.Server
	results *memresults.Store
	store   *memjobs.Store
	service *jobs.Service // used by the answering service
	ahead   atomic.Int64  // how far the clock of the jobs is ahead
	refused atomic.Bool
	asked   atomic.Int64
	// a checkpoint of the handler was stored, and has run again after that
	begun, repeated atomic.Bool
	ended           []<-chan error
}

// outlive runs a consumer that dies with first, and then another one, until the task and its
// successor have ended.
func outlive(t *testing.T, first *life, handler func(d *dying, ctx context.Context, key string) (int, error)) *dying {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &dying{t: t, handler: handler, server: membroker.NewServer(membroker.Config{}), results: memresults.New(memresults.Config{})}
	var err error
	d.store, err = memjobs.New(memjobs.Config{Now: func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }})
	must(t, err)
	d.service, err = jobs.New(jobs.Config{Store: d.store})
	must(t, err)
	sender := d.server.Connect()
	p, err := producer.New(producer.Config{Broker: sender, Results: d.results.View()})
	must(t, err)

	mine := d.consume(ctx, first)
	call := mortalAsk.Call("k", task.WithRetry(task.RetryPolicy{Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Millisecond}}))
	call.Then = []task.Link{{ID: "after", Name: "double"}}
	pending, err := p.Submit(ctx, call)
	must(t, err)
	after := p.Pending("after")
	select {
	case <-first.dead:
		d.ahead.Add(int64(time.Minute)) // its leases have ended
		_ = mine.Close(ctx)             // its deliveries go back to the queue
		d.consume(ctx, newLife(0, false))
	case <-after.Done():
	case <-ctx.Done():
		t.Fatal("neither the end of the task nor that of its consumer came")
	}
	for name, f := range map[string]task.Pending{"the task": pending, "what follows it": after} {
		want := map[string]int{"the task": 21, "what follows it": 42}[name]
		var got int
		if err := f.Result(ctx, &got); err != nil || got != want {
			t.Errorf("%s came to %d, %v; want %d", name, got, err, want)
		}
	}
	d.over(ctx)
	cancel()
	first.end()
	for _, ended := range d.ended {
		if err := <-ended; err != nil && !errors.Is(err, consumer.ErrForced) && !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Run: %v", err)
		}
	}
	closing, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	must(t, errors.Join(p.Close(closing), d.service.Close(closing), d.store.Close(closing), d.results.Close(closing), sender.Close(closing)))
	return d
}

var mortalAsk = task.New[string, int]("ask")

// consume runs a consumer that dies with l.
func (d *dying) consume(ctx context.Context, l *life) *membroker.Broker {
	b := d.server.Connect()
	service, err := jobs.New(jobs.Config{Store: mortalJobs{d.store.Join(), l}})
	must(d.t, err)
	kept, err := deferrals.New(deferrals.Config{Jobs: service, Logger: slog.New(slog.DiscardHandler)})
	must(d.t, err)
	var results resultstore.ResultStore = mortalStore{d.results.View(), l}
	c, err := consumer.New(consumer.Config{
		Broker: mortalBroker{b, l}, Results: results, Deferrals: kept, Logger: slog.New(slog.DiscardHandler),
		ShutdownTimeout: -1, Tuning: consumer.Tuning{KillGrace: 50 * time.Millisecond, StoreRetry: 20 * time.Second},
	})
	must(d.t, err)
	must(d.t, mortalAsk.Handle(c, func(ctx context.Context, key string) (int, error) { return d.handler(d, ctx, key) }))
	must(d.t, task.New[int, int]("double").Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }))
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() {
		select {
		case <-l.dead:
			c.Kill()
		case <-running.Done():
		}
		stop()
	}()
	go func() {
		defer stop()
		ended <- c.Run(running)
	}()
	d.ended = append(d.ended, ended)
	return b
}

// expect is a handler that waits for its answer.
func (d *dying) expect(ctx context.Context, key string) (int, error) {
	if err := task.Expect(ctx, key); err != nil {
		return 0, err
	}
	d.answer(key)
	return 0, task.Defer(key)
}

// answer acts as the outside service: it refuses the first request for a key and accepts repeated
// requests.
func (d *dying) answer(key string) {
	d.asked.Add(1)
	var err error
	if d.refused.CompareAndSwap(false, true) {
		_, err = d.service.Reject(context.Background(), "ask", key, errors.New("busy"))
	} else {
		_, err = d.service.Complete(context.Background(), "ask", key, 21)
	}
	if err != nil {
		d.t.Error(err)
	}
}

// over waits until no task is deferred.
func (d *dying) over(ctx context.Context) {
	for {
		open := 0
		err := d.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			found, err := tx.DeferralOf(ctx, "ask", "k")
			if open = 0; found != nil && found.Open() {
				open = 1
			}
			return err
		})
		if open == 0 && err == nil {
			return
		}
		select {
		case <-ctx.Done():
			d.t.Errorf("%d tasks are still deferred, %v", open, err)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
