package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// unanswered is a store that saves records but loses the answers until a time.
type unanswered struct {
	resultstore.ResultStore
	until time.Time
}

func (s unanswered) Save(ctx context.Context, r resultstore.Record) error {
	err := s.ResultStore.Save(ctx, r)
	if err == nil && time.Now().Before(s.until) {
		return resultstore.ErrUnavailable
	}
	return err
}

// TestStoreAnswersLostAtMostOnce shows that the successors of a success are sent, if the answers of
// the store are lost for longer than StoreRetry.
func TestStoreAnswersLostAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Results = unanswered{c.Results, time.Now().Add(5 * time.Minute)}
		})
		b.run()
		c := echo.Call(3, task.WithID("first"), task.WithIdempotent(false))
		c.Then = []task.Link{{ID: "second", Name: "echo"}}
		c.Else = []task.Link{{ID: "error-task", Name: "echo"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got, err := task.FutureOf[int](b.p.Pending("first")).Get(ctx); err != nil || got != 3 {
			t.Errorf("first: %v %v", got, err)
		}
		if got, err := task.FutureOf[int](b.p.Pending("second")).Get(ctx); err != nil || got != 3 {
			t.Errorf("second: %v %v", got, err)
		}
		time.Sleep(10 * time.Minute)
		if rec, err := b.store.Load(t.Context(), "error-task"); !errors.Is(err, resultstore.ErrNotFound) {
			t.Errorf("the error task of a task that succeeded: %v %v", rec.State, err)
		}
		b.end()
	})
}

// TestOneDeadLetterAtMostOnce shows that a task without a record, whose followers are blocked for
// an hour, becomes one dead letter and is followed once.
func TestOneDeadLetterAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wrapped{}
		until := time.Now().Add(time.Hour)
		b := newTable(t, func(c *consumer.Config) {
			w.Broker = c.Broker
			w.publish = func(_ context.Context, _ broker.Outgoing, do func() error) error {
				if time.Now().Before(until) {
					return broker.ErrBlocked
				}
				return do()
			}
			c.Broker = w
		})
		var failures atomic.Int64
		onError := task.New[task.Failure, int]("on-error", task.WithIgnoreResult(true))
		must0(t, onError.Handle(b.c, func(context.Context, task.Failure) (int, error) { failures.Add(1); return 0, nil }))
		b.run()
		c := echo.Call(-1, task.WithID("first"), task.WithIdempotent(false), task.WithIgnoreResult(true))
		c.Else = []task.Link{{ID: "error-task", Name: "on-error"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if s := b.stats(t); s.Dead != 1 || b.metrics.Failed.Count() != 1 || failures.Load() != 1 {
			t.Errorf("%d letters, failed %d times, %d error tasks", s.Dead, b.metrics.Failed.Count(), failures.Load())
		}
		b.end()
	})
}

// TestSubmitterAwayAtMostOnce shows that a succeeded task is followed as a success, if the
// submitter's store fails for long and the consumer keeps no results.
func TestSubmitterAwayAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Defaults = task.Metadata{IgnoreResult: task.Set(true)}
			c.Results = flakyStore{c.Results, time.Now().Add(5 * time.Minute), resultstore.ErrUnavailable}
		})
		var failures, seconds atomic.Int64
		onError := task.New[task.Failure, int]("on-error")
		must0(t, onError.Handle(b.c, func(context.Context, task.Failure) (int, error) { failures.Add(1); return 0, nil }))
		second := task.New[int, int]("second", task.WithIdempotent(false))
		must0(t, second.Handle(b.c, func(context.Context, int) (int, error) { seconds.Add(1); return 0, nil }))
		b.run()
		c := echo.Call(3, task.WithID("first"), task.WithIdempotent(false))
		c.Then = []task.Link{{ID: "second", Name: "second", Meta: second.Metadata()}}
		c.Else = []task.Link{{ID: "error-task", Name: "on-error"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := b.stats(t); s.Dead != 0 || failures.Load() != 0 || seconds.Load() != 1 {
			t.Errorf("%d letters, %d error tasks, %d next steps", s.Dead, failures.Load(), seconds.Load())
		}
		b.end()
	})
}

// TestStopWithStoreAwayAtMostOnce shows that a task whose settlement a stop ends, while the result
// store is unreachable, is dead-lettered.
func TestStopWithStoreAwayAtMostOnce(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		t.Run(fmt.Sprintf("succeeds=%t", succeeds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTable(t, func(c *consumer.Config) {
					c.Results = flakyStore{c.Results, time.Now().Add(time.Hour), resultstore.ErrUnavailable}
				})
				var started atomic.Int64
				def := task.New[int, int]("pay", task.WithIdempotent(false))
				must0(t, def.Handle(b.c, func(context.Context, int) (int, error) {
					started.Add(1)
					if !succeeds {
						return 0, task.Retry(errors.New("no"), task.After(time.Second))
					}
					return 1, nil
				}))
				b.run()
				if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("p")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				err := b.stop()
				if s := b.stats(t); started.Load() != 1 || s.Dead != 1 {
					t.Errorf("Run ended (%v); %d started, no record, and %+v", err, started.Load(), s)
				}
				_ = b.p.Close(t.Context())
				_ = b.store.Close(t.Context())
			})
		})
	}
}

// hanging is a store that never answers.
type hanging struct{ resultstore.ResultStore }

func (hanging) Save(ctx context.Context, _ resultstore.Record) error {
	<-ctx.Done()
	return resultstore.ErrUnavailable
}

// punctual is a broker that writes no dead letter after ctx has ended, as over a network.
type punctual struct{ *membroker.Broker }

func (b punctual) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	if ctx.Err() != nil {
		return broker.ErrUnavailable
	}
	return b.Broker.PutDead(ctx, queue, d)
}

// TestLeftBehindWithStoreHangingAtMostOnce shows that each task is dead-lettered if a stop leaves
// several handlers behind and the store does not answer.
func TestLeftBehindWithStoreHangingAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		b := newTable(t, func(c *consumer.Config) {
			c.ShutdownTimeout = time.Second
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: n}}
			c.Results, c.Broker = hanging{c.Results}, punctual{c.Broker.(*membroker.Broker)}
		})
		started, release := make(chan struct{}, n), make(chan struct{})
		def := task.New[int, int]("stubborn", task.WithIdempotent(false))
		must0(t, def.Handle(b.c, func(context.Context, int) (int, error) {
			started <- struct{}{}
			<-release
			return 0, nil
		}))
		b.run()
		for i := range n {
			if _, err := def.Submit(t.Context(), b.p, i); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			<-started
		}
		err := b.stop()
		if s := b.stats(t); s.Dead != n {
			t.Errorf("Run ended (%v) and left %d handlers behind: %+v", err, n, s)
		}
		close(release)
		synctest.Wait()
		if s := b.stats(t); s.Dead != n {
			t.Errorf("after the handlers have returned: %+v", s)
		}
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

// awayJobs is a store of jobs that fails while away is set.
type awayJobs struct {
	jobs.Store
	away atomic.Bool
}

func (s *awayJobs) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	if s.away.Load() {
		return jobs.ErrUnavailable
	}
	return s.Store.Update(ctx, fn)
}

// TestAnswerAgainAtMostOnce shows that no attempt of a deferred at-most-once task starts twice
// after a refusal. Its retry is sent, and the store fails before the deferral is replaced. The
// uncertain task is dead-lettered.
func TestAnswerAgainAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		store := &awayJobs{Store: memory}
		service, err := jobs.New(jobs.Config{Store: store})
		must0(t, err)
		w := &wrapped{}
		var once atomic.Bool
		b := newTable(t, func(c *consumer.Config) {
			c.Deferrals = deferralsOf(t, service)
			w.Broker = c.Broker
			w.publish = func(_ context.Context, o broker.Outgoing, do func() error) error {
				if o.Message.Generation == 1 && once.CompareAndSwap(false, true) {
					store.away.Store(true)
				}
				return do()
			}
			c.Broker = w
		})
		var first, second atomic.Int64
		def := task.New[int, int]("ask", task.WithIdempotent(false), task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(0), task.WithIgnoreResult(true))
		must0(t, def.Handle(b.c, func(ctx context.Context, i int) (int, error) {
			if req, _ := task.FromContext(ctx); req.Retries > 0 {
				second.Add(1)
				return 0, nil
			}
			first.Add(1)
			if err := task.Expect(ctx, "k"); err != nil {
				return 0, err
			}
			return 0, task.Defer("")
		}))
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("ask-1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := service.Reject(t.Context(), "ask", "k", errors.New("no")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		store.away.Store(false)
		time.Sleep(time.Hour)
		if s := b.stats(t); first.Load() != 1 || second.Load() != 1 || s.Dead != 1 {
			t.Errorf("the first attempt was started %d times, the second %d times; %+v", first.Load(), second.Load(), s)
		}
		b.end()
		_ = service.Close(t.Context())
		_ = memory.Close(t.Context())
	})
}
