package consumer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// brokenError panics in Error, as a typed nil does.
type brokenError struct{ text *string }

func (e *brokenError) Error() string { return *e.text }

// brokenResult panics when it is encoded.
type brokenResult struct{}

func (brokenResult) MarshalJSON() ([]byte, error) { panic("marshal") }

// TestUserCodePanicsAfterTheHandler shows that panics in methods of errors and results fail only
// their task (fault 22).
func TestUserCodePanicsAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		bad := task.New[int, any]("bad", task.WithSerializer("application/json"))
		if err := bad.Handle(b.c, func(_ context.Context, i int) (any, error) {
			switch i {
			case 0:
				return nil, (*brokenError)(nil)
			case 1:
				return nil, task.Retry(&brokenError{}, task.After(0), task.AtMost(1))
			}
			return brokenResult{}, nil
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		for i := range 3 {
			f, err := bad.Submit(t.Context(), b.p, i)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrPanic) {
				t.Errorf("case %d: %v", i, err)
			}
		}
		if got, err := b.submit(5).Get(t.Context()); err != nil || got != 5 {
			t.Fatal(got, err)
		}
		b.end()
	})
}

// TestLongOutageIsNoPoison shows that a task whose result cannot be stored for an hour, and is
// redelivered many times, does not count as poison.
func TestLongOutageIsNoPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Results = flakyStore{c.Results, time.Now().Add(time.Hour), resultstore.ErrUnavailable}
		})
		b.run()
		if got, err := b.submit(7).Get(t.Context()); err != nil || got != 7 {
			t.Fatal(got, err)
		}
		if b.metrics.Released.Count() < 10 || b.metrics.Crashes.Count() != 0 || b.metrics.DeadLettered.Count() != 0 {
			t.Fatalf("given back %d times, %d crashes, %d buried", b.metrics.Released.Count(), b.metrics.Crashes.Count(), b.metrics.DeadLettered.Count())
		}
		b.end()
	})
}

// TestFailedForGoodIsNotRetried shows that the outermost error decides.
func TestFailedForGoodIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		runs := 0
		def := task.New[int, int]("final")
		if err := def.Handle(b.c, func(context.Context, int) (int, error) {
			runs++
			return 0, task.Fail(task.Retry(errors.New("inner"), task.After(0)))
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		f, err := def.Submit(t.Context(), b.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "inner") || runs != 1 {
			t.Fatalf("%v after %d runs", err, runs)
		}
		b.end()
	})
}

// cutBroker is a broker that loses the connection during the first publish of a copy.
type cutBroker struct {
	*membroker.Broker
	server *membroker.Server
	once   sync.Once
	failed bool
}

func (b *cutBroker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	b.once.Do(func() { b.failed = true })
	if b.failed {
		b.failed = false
		b.server.Disconnect(b.Broker)
		return broker.ErrIndeterminate
	}
	return b.Broker.PublishAt(ctx, queue, m, at)
}

// TestCutWhileRetryingAtMostOnce shows that the retry of an acknowledged task is not sent again if
// its outcome is unknown. The task is dead-lettered as uncertain.
func TestCutWhileRetryingAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cb := &cutBroker{}
		b := newTable(t, func(c *consumer.Config) {
			cb.Broker = c.Broker.(*membroker.Broker)
			c.Broker = cb
		})
		cb.server = b.server
		b.run()
		f := b.submit(-1, task.WithIdempotent(false), task.WithMaxRetries(1))
		if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrUncertain) || b.runs.Load() != 1 {
			t.Fatalf("%v after %d runs", err, b.runs.Load())
		}
		synctest.Wait()
		if s, err := b.server.Connect().Stats(t.Context(), "default"); err != nil || s.Dead != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		b.end()
	})
}

// takeOnce receives a message as a consumer that dies before its acknowledgement.
func (b *table) takeOnce(t *testing.T) {
	t.Helper()
	other := b.server.Connect()
	sub, err := other.Subscribe(t.Context(), "default", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAtMostOnceHeldOnly shows that a redelivered at-most-once task starts if acknowledgements are
// final. Promises: S54.
func TestAtMostOnceHeldOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		f := b.submit(7, task.WithIdempotent(false))
		b.takeOnce(t)
		b.run()
		if got, err := f.Get(t.Context()); err != nil || got != 7 || b.runs.Load() != 1 {
			t.Fatal(got, err, b.runs.Load())
		}
		b.end()
	})
}

// TestAtMostOnceIsNotStartedAgain shows that an at-most-once task that was acknowledged before is
// dead-lettered, since it may have started.
func TestAtMostOnceIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.Broker = forgetful(c.Broker) })
		f := b.submit(7, task.WithIdempotent(false))
		b.takeOnce(t)
		b.run()
		if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrUncertain) {
			t.Fatal(err)
		}
		synctest.Wait()
		if s, err := b.server.Connect().Stats(t.Context(), "default"); err != nil || s.Dead != 1 || b.runs.Load() != 0 {
			t.Fatalf("%+v, %v; %d runs", s, err, b.runs.Load())
		}
		b.end()
	})
}

// TestSuccessorSurvivesExpiry shows that a succeeded task whose consumer died before it sent the
// successor does not expire.
func TestSuccessorSurvivesExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		c := echo.Call(1, task.WithID("first"), task.WithExpires(time.Now().Add(time.Minute)))
		c.Then = []task.Link{{ID: "second", Name: "echo"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		b.takeOnce(t)
		if err := b.store.Save(t.Context(), resultstore.Record{ID: "first", State: task.StateSucceeded, ContentType: "application/json", Result: []byte("5"), Deliveries: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the bubble's clock
		b.run()
		if got, err := task.FutureOf[int](b.p.Pending("second")).Get(t.Context()); err != nil || got != 5 {
			t.Fatal(got, err)
		}
		b.end()
	})
}

// fullQueue is a broker that refuses one queue until a time.
type fullQueue struct {
	*membroker.Broker
	queue string
	until time.Time
	sent  map[string]int
}

func (b *fullQueue) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	failed := false
	for i, o := range ms {
		if o.Queue == b.queue && time.Now().Before(b.until) {
			errs[i], failed = broker.ErrBlocked, true
			continue
		}
		b.sent[o.Message.ID]++
		errs[i] = b.Publish(ctx, o.Queue, o.Message)
		failed = failed || errs[i] != nil
	}
	if failed {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}

// TestSuccessorsAreSentOnceEach shows that a successor that must wait does not repeat the others,
// and that one that cannot be sent fails with an error.
func TestSuccessorsAreSentOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fq := &fullQueue{queue: "full", until: time.Now().Add(20 * time.Second), sent: make(map[string]int)}
		b := newTable(t, func(c *consumer.Config) {
			fq.Broker = c.Broker.(*membroker.Broker)
			c.Broker = fq
			c.Queues = map[string]consumer.QueueConfig{"default": {}, "full": {}}
		})
		c := echo.Call(3)
		c.Then = []task.Link{
			{ID: "quick", Name: "echo"},
			{ID: "slow", Name: "echo", Queue: "full"},
			{ID: "nowhere", Name: "echo", Queue: "missing"},
			{ID: "misfit", Name: "echo", Feed: task.FeedInto, Field: "x", ContentType: "application/json", Args: []byte("[1]")},
		}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		b.run()
		for id, want := range map[task.ID]error{"quick": nil, "slow": nil, "nowhere": broker.ErrNoQueue, "misfit": errors.New("")} {
			_, err := task.FutureOf[int](b.p.Pending(id)).Get(t.Context())
			if (err == nil) != (want == nil) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if fq.sent["quick"] != 1 || fq.sent["slow"] != 1 {
			t.Errorf("sent %v", fq.sent)
		}
		b.end()
	})
}

// TestKillWhileTheBrokerIsAway shows that Kill ends Run at once while the broker is unreachable.
func TestKillWhileTheBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = absent{c.Broker.(*membroker.Broker), time.Now().Add(1000 * time.Hour)}
		})
		done := make(chan error)
		begin := time.Now()
		go func() { done <- b.c.Run(t.Context()) }()
		synctest.Wait()
		b.c.Kill()
		if err := <-done; err != nil || time.Since(begin) > time.Minute {
			t.Fatalf("%v after %s", err, time.Since(begin))
		}
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

// TestSuspectRunsAlone shows that a task that has ended a process runs alone, and that other tasks
// continue afterwards.
func TestSuspectRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		var mu sync.Mutex
		var order []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, s)
		}
		def := task.New[string, int]("note", task.WithIgnoreResult(true))
		conn := b.server.Connect()
		if err := def.Handle(b.c, func(ctx context.Context, s string) (int, error) {
			note(s)
			// if this handler ended the process now, the start of the suspect must not count, since that has
			// ended
			if s == "other" {
				starts, err := conn.NoteStart(ctx, "default", broker.Start{ID: "s", Nonce: rand.Text(), Node: "reader", At: time.Now()})
				if err != nil || !slices.ContainsFunc(starts, func(s broker.Start) bool { return s.Alone && s.Verdict == broker.StartCleared }) {
					t.Errorf("%v; the notes are %+v; wanted that of the start alone as cleared", err, starts)
				}
			}
			if s == "suspect" {
				time.Sleep(10 * time.Second) // the bubble's clock
				note("suspect ended")
			}
			return 0, nil
		}); err != nil {
			t.Fatal(err)
		}
		m, err := msgpack.Compact{}.Encode(&task.Envelope{ID: "s", Name: "note", ContentType: "application/json", Args: []byte(`"suspect"`), Meta: def.Metadata()})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Declare(t.Context(), broker.Queue{Name: "default"}); err != nil {
			t.Fatal(err)
		}
		if err := conn.Publish(t.Context(), "default", m); err != nil {
			t.Fatal(err)
		}
		b.takeOnce(t)
		death := broker.Start{ID: "s", Nonce: "n", Node: "dead", At: time.Now()}
		if _, err := conn.NoteStart(t.Context(), "default", death); err != nil {
			t.Fatal(err)
		}
		death.Verdict = broker.StartDied
		if err := conn.JudgeStart(t.Context(), "default", death); err != nil {
			t.Fatal(err)
		}
		b.run()
		synctest.Wait()
		for range 3 {
			if _, err := def.Submit(t.Context(), b.p, "other"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // the bubble's clock
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"suspect", "suspect ended", "other", "other", "other"}; !slices.Equal(order, want) {
			t.Fatalf("%q, want %q", order, want)
		}
		b.end()
	})
}

// TestHandlerLeftBehindReturns lets a stop read the run of a handler while the handler returns. The
// race detector checks it.
func TestHandlerLeftBehindReturns(t *testing.T) {
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
			return 0, nil
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 1); err != nil {
			t.Fatal(err)
		}
		<-started
		if err := b.stop(); !errors.Is(err, consumer.ErrForced) {
			t.Fatalf("Run: %v", err)
		}
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

// onMessage calls do when a message with the prefix text is logged.
type onMessage struct {
	slog.Handler
	text string
	do   func()
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.text) {
		h.do()
	}
	return nil
}
