package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// wrapped is a broker whose publishes can be made to fail. Other capabilities, such as Retrier, are
// those of the inner broker.
type wrapped struct {
	broker.Broker
	publish func(ctx context.Context, o broker.Outgoing, do func() error) error
}

func (b *wrapped) Unwrap() any { return b.Broker }
func (b *wrapped) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.PublishAt(ctx, queue, m, time.Time{})
}

func (b *wrapped) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	o := broker.Outgoing{Queue: queue, Message: m, At: at}
	return b.publish(ctx, o, func() error { return broker.PublishAt(ctx, b.Broker, o) })
}

func (b *wrapped) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	failed := false
	for i, o := range ms {
		errs[i] = b.PublishAt(ctx, o.Queue, o.Message, o.At)
		failed = failed || errs[i] != nil
	}
	if failed {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}

// TestAnswerRetryAtMostOnce shows that a deferred task that runs at most once, whose retry was
// queued with a lost confirm, does not run twice. The retry follows a refusal as the answer.
func TestAnswerRetryAtMostOnce(t *testing.T) {
	for _, ignore := range []bool{true, false} {
		t.Run(fmt.Sprintf("ignoreResult=%t", ignore), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := memjobs.New(memjobs.Config{})
				must0(t, err)
				service, err := jobs.New(jobs.Config{Store: store})
				must0(t, err)
				w := &wrapped{}
				var once atomic.Bool
				b := newTable(t, func(c *consumer.Config) {
					c.Deferrals = deferralsOf(t, service)
					w.Broker = c.Broker
					w.publish = func(_ context.Context, _ broker.Outgoing, do func() error) error {
						err := do()
						if err == nil && once.CompareAndSwap(false, true) {
							time.Sleep(50 * time.Second) // the confirm is lost, and the retry runs meanwhile
							return fmt.Errorf("the answer is lost: %w", broker.ErrIndeterminate)
						}
						return err
					}
					c.Broker = w
				})
				var mu sync.Mutex
				starts := map[int]int{}
				def := task.New[int, int]("ask", task.WithIdempotent(false), task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(0), task.WithIgnoreResult(ignore))
				if err := def.Handle(b.c, func(ctx context.Context, i int) (int, error) {
					req, _ := task.FromContext(ctx)
					mu.Lock()
					starts[req.Retries]++
					mu.Unlock()
					if req.Retries > 0 {
						return 0, nil
					}
					if err := task.Expect(ctx, "k"); err != nil {
						return 0, err
					}
					return 0, task.Defer("")
				}); err != nil {
					t.Fatal(err)
				}
				b.run()
				if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("ask-1")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if _, err := service.Reject(t.Context(), "ask", "k", errors.New("no")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				mu.Lock()
				for a, n := range starts {
					if n > 1 {
						t.Errorf("attempt %d of a task that runs at most once was started %d times", a, n)
					}
				}
				t.Logf("starts %v", starts)
				mu.Unlock()
				b.end()
				_ = service.Close(t.Context())
				_ = store.Close(t.Context())
			})
		})
	}
}

// TestSuccessorsBlockedAtMostOnce shows that the successors of a task that ran at most once are
// sent when the broker accepts them after more than StoreRetry.
func TestSuccessorsBlockedAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wrapped{}
		until := time.Now().Add(5 * time.Minute)
		b := newTable(t, func(c *consumer.Config) {
			w.Broker = c.Broker
			w.publish = func(ctx context.Context, o broker.Outgoing, do func() error) error {
				if o.Message.ID == "second" && time.Now().Before(until) {
					return broker.ErrBlocked
				}
				return do()
			}
			c.Broker = w
		})
		b.run()
		c := echo.Call(3, task.WithID("first"), task.WithIdempotent(false))
		c.Then = []task.Link{{ID: "second", Name: "echo"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		t.Logf("after the queue was blocked for 5 min: %+v, first %s", b.stats(t), b.rec(t, "first").State)
		l, _ := deadletter.New(deadletter.Config{Broker: b.server.Connect(), Results: b.store})
		rep, err := l.Requeue(t.Context(), "default", deadletter.Filter{})
		t.Logf("requeue: %+v %v", rep, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got, err := task.FutureOf[int](b.p.Pending("second")).Get(ctx); err != nil {
			t.Errorf("the step after it: %v %v", got, err)
		}
		b.end()
	})
}

// TestStoreAwayAtMostOnce shows that a task that ran at most once fails as uncertain if the result
// store fails for more than StoreRetry. When the store works again, the failures of the task and
// of its successor are recorded.
func TestStoreAwayAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Results = flakyStore{c.Results, time.Now().Add(5 * time.Minute), resultstore.ErrUnavailable}
		})
		b.run()
		c := echo.Call(3, task.WithID("first"), task.WithIdempotent(false))
		c.Else = []task.Link{{ID: "error-task", Name: "echo"}}
		c.Then = []task.Link{{ID: "second", Name: "echo"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := task.FutureOf[int](b.p.Pending("first")).Get(ctx)
		_, err2 := task.FutureOf[int](b.p.Pending("second")).Get(ctx)
		if !errors.Is(err, task.ErrUncertain) || err2 == nil || errors.Is(err2, context.DeadlineExceeded) {
			t.Errorf("10 h after the store came back: first: %v; second: %v; runs %d, %+v", err, err2, b.runs.Load(), b.stats(t))
		}
		b.end()
	})
}

// TestLeftBehindAtMostOnce shows that a task that runs at most once leaves a record or a dead
// letter when a stop leaves its handler behind.
func TestLeftBehindAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.ShutdownTimeout, c.Tuning.KillGrace = time.Second, time.Second })
		started, release := make(chan struct{}), make(chan struct{})
		def := task.New[int, int]("stubborn", task.WithIdempotent(false))
		if err := def.Handle(b.c, func(context.Context, int) (int, error) {
			close(started)
			<-release
			return 0, nil
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 1, task.WithID("s")); err != nil {
			t.Fatal(err)
		}
		<-started
		err := b.stop()
		rec, lerr := b.store.Load(t.Context(), "s")
		if s := b.stats(t); s.Dead == 0 && lerr != nil {
			t.Errorf("Run ended in order (%v), and of the task that it had started there is no record (%v) and no dead letter: %+v %v", err, lerr, s, rec.State)
		}
		close(release)
		synctest.Wait()
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

// TestNoteRace lets a stop give back a task with a noted start while its handler returns. The race
// detector checks it.
func TestNoteRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		givenUp := make(chan struct{})
		b := newTable(t, func(c *consumer.Config) {
			c.ShutdownTimeout, c.Tuning.KillGrace = -1, time.Second
			c.Logger = slog.New(onMessage{slog.DiscardHandler, "handler left behind", sync.OnceFunc(func() { close(givenUp) })})
		})
		started := make(chan struct{})
		def := task.New[int, int]("stubborn", task.WithIgnoreResult(true))
		if err := def.Handle(b.c, func(context.Context, int) (int, error) {
			close(started)
			<-givenUp
			return 0, errors.New("x")
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := def.Submit(t.Context(), b.p, 1); err != nil {
			t.Fatal(err)
		}
		b.takeOnce(t)
		b.run()
		<-started
		if err := b.stop(); !errors.Is(err, consumer.ErrForced) {
			t.Fatalf("Run: %v", err)
		}
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

// notesSeen is a broker that passes each note of a start to noted.
type notesSeen struct {
	*membroker.Broker
	noted func(s broker.Start)
}

func (b *notesSeen) NoteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	b.noted(s)
	return b.Broker.NoteStart(ctx, queue, s)
}

// TestSuspectBesideALongRunIsNotQuarantined shows that a suspect that starts beside a long-running
// task is not noted as alone.
func TestSuspectBesideALongRunIsNotQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		nb := &notesSeen{}
		var lie atomic.Bool
		nb.noted = func(s broker.Start) {
			if s.ID == "healthy" && s.Alone && running.Load() > 0 {
				lie.Store(true)
			}
		}
		b := newTable(t, func(c *consumer.Config) {
			nb.Broker = c.Broker.(*membroker.Broker)
			c.Broker = nb
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 4}}
		})
		def := task.New[int, int]("long", task.WithIgnoreResult(true))
		if err := def.Handle(b.c, func(_ context.Context, i int) (int, error) {
			running.Add(1)
			defer running.Add(-1)
			time.Sleep(time.Duration(i) * time.Second)
			return 0, nil
		}); err != nil {
			t.Fatal(err)
		}
		// two tasks whose first noted start ended a process
		conn := b.server.Connect()
		for _, id := range []string{"poison", "healthy"} {
			if _, err := def.Submit(t.Context(), b.p, 120, task.WithID(task.ID(id))); err != nil {
				t.Fatal(err)
			}
		}
		other := b.server.Connect()
		sub, _ := other.Subscribe(t.Context(), "default", broker.SubscribeOptions{})
		for range 2 {
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = other.Close(t.Context())
		for _, id := range []string{"poison", "healthy"} {
			s := broker.Start{ID: id, Nonce: "n", Node: "dead", At: time.Now()}
			if _, err := conn.NoteStart(t.Context(), "default", s); err != nil {
				t.Fatal(err)
			}
			s.Verdict = broker.StartDied
			if err := conn.JudgeStart(t.Context(), "default", s); err != nil {
				t.Fatal(err)
			}
		}
		b.run()
		time.Sleep(10 * time.Minute)
		if lie.Load() {
			t.Error("the note of the second suspect says that it is alone in its process, beside the first one; if that one ends the process now, the healthy one is dead-lettered")
		}
		b.end()
	})
}

// flapWitness is a broker that returns the node states of a function.
type flapWitness struct {
	*membroker.Broker
	state func(node string) broker.NodeState
}

func (b *flapWitness) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	return b.state(node), nil
}

// TestFrozenNodeIsNotCountedLater shows that an absence of a node of 31 s does not count hours
// later. The connection of the node is then cut for a second.
func TestFrozenNodeIsNotCountedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fw := &flapWitness{}
		begin := time.Now()
		fw.state = func(string) broker.NodeState {
			since := time.Since(begin)
			if since < 40*time.Second || since > 5*time.Hour && since < 5*time.Hour+time.Second {
				return broker.NodeAbsent
			}
			return broker.NodePresent
		}
		b := newTable(t, func(c *consumer.Config) { fw.Broker = c.Broker.(*membroker.Broker); c.Broker = fw })
		b.run()
		synctest.Wait()
		give := func(id string) {
			conn := b.server.Connect()
			if err := b.c.Pause(); err != nil {
				t.Fatal(err)
			}
			b.submit(7, task.WithID(task.ID(id)))
			b.takeOnce(t)
			if _, err := conn.NoteStart(t.Context(), "default", broker.Start{ID: id, Nonce: "n", Node: "lively", At: time.Now()}); err != nil {
				t.Fatal(err)
			}
			if err := b.c.Resume(); err != nil {
				t.Fatal(err)
			}
		}
		give("frozen")
		time.Sleep(time.Minute)
		first := b.metrics.Crashes.Count() // this absence counts, as documented
		give("present")                    // the node is present again
		time.Sleep(time.Minute)
		second := b.metrics.Crashes.Count()
		time.Sleep(5*time.Hour - time.Since(begin) + 500*time.Millisecond)
		give("flap")
		time.Sleep(time.Minute)
		third := b.metrics.Crashes.Count()
		t.Logf("crashes: %d after 40 s of absence, %d after it was seen alive, %d after a cut of 1 s five hours later", first, second, third)
		if third != second {
			t.Error("a cut of 1 s counts as a crash, because the node was once away for longer")
		}
		b.end()
	})
}

// TestStopWithoutAnswerToAcks shows that a consumer stops although the broker still answers none of
// its acknowledgements. Each task whose acknowledgement has an unknown outcome has failed as
// uncertain.
func TestStopWithoutAnswerToAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.Broker = noAckAnswers(c.Broker) })
		b.run()
		for range 3 {
			if _, err := b.submit(1, task.WithIdempotent(false)).Get(t.Context()); !errors.Is(err, task.ErrUncertain) {
				t.Errorf("the task ended with %v, want ErrUncertain", err)
			}
		}
		if n := b.runs.Load(); n != 0 {
			t.Errorf("%d runs of tasks whose acknowledgement was not answered", n)
		}
		b.end() // its error would be a stop that had to be forced
	})
}
