package revoke_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

var work = task.New[int, int]("work")

// site is a producer and a consumer in memory, in a synctest bubble.
type site struct {
	t    *testing.T
	p    *producer.Producer
	runs atomic.Int64
	end  func()
}

func newSite(t *testing.T, list *revoke.List) *site {
	t.Helper()
	ctx := t.Context()
	b, results := membroker.New(), memresults.New(memresults.Config{})
	s := &site{t: t}
	var err error
	if s.p, err = producer.New(producer.Config{Broker: b, Results: results, Logger: quiet()}); err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Revocations: list, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Handle(c, func(_ context.Context, n int) (int, error) { s.runs.Add(1); return n, nil }); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	s.end = func() {
		t.Helper()
		stop()
		if err := errors.Join(<-ended, list.Close(ctx), s.p.Close(ctx), results.Close(ctx), b.Close(ctx)); err != nil {
			t.Error(err)
		}
	}
	return s
}

func (s *site) submit(id task.ID, opts ...task.Option) *task.Future[int] {
	s.t.Helper()
	f, err := work.Submit(s.t.Context(), s.p, 1, append(opts, task.WithID(id))...)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// ends reports whether a task ends within a time, and returns its error.
func (s *site) ends(f *task.Future[int], within time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	_, err := f.Get(ctx)
	return !errors.Is(err, context.DeadlineExceeded), err
}

// TestPutBackWhileTheBusIsAway shows that a task with an unknown revocation is delayed while the
// bus does not answer. Other tasks run.
func TestPutBackWhileTheBusIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &away{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
		defer bus.Close(context.Background())
		bus.back.Store(true)
		if _, err := newRevoker(t, bus).Revoke(t.Context(), revoke.Options{}, "1", "2", "3"); stored(err) != nil {
			t.Fatal(err)
		}
		list := newList(t, revoke.Config{Events: bus, Max: 1})
		ready(t, list)
		bus.back.Store(false)
		s := newSite(t, list)
		doubtful, known, other := s.submit("1"), s.submit("3"), s.submit("4")
		if ended, err := s.ends(other, time.Hour); !ended || err != nil {
			t.Errorf("a task that nobody revoked: %v, %v", ended, err)
		}
		if _, err := s.ends(known, time.Hour); !errors.Is(err, task.ErrRevoked) {
			t.Errorf("the newest revocation, which needs no bus: %v", err)
		}
		if ended, err := s.ends(doubtful, 10*time.Minute); ended {
			t.Errorf("a task that may be revoked ended while nobody could tell: %v", err)
		}
		bus.back.Store(true)
		if _, err := s.ends(doubtful, 10*time.Minute); !errors.Is(err, task.ErrRevoked) {
			t.Errorf("when the bus was back: %v", err)
		}
		if n := s.runs.Load(); n != 1 {
			t.Errorf("%d tasks ran, want 1", n)
		}
		s.end()
	})
}

// TestNothingStartsUnread shows that no task starts before the stored revocations are read.
func TestNothingStartsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &away{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
		defer bus.Close(context.Background())
		if _, err := newRevoker(t, bus.Bus).Revoke(t.Context(), revoke.Options{}, "1"); stored(err) != nil {
			t.Fatal(err)
		}
		s := newSite(t, newList(t, revoke.Config{Events: bus}))
		revoked, other := s.submit("1"), s.submit("2")
		if ended, err := s.ends(other, time.Hour); ended {
			t.Errorf("a task ended before the revocations were read: %v", err)
		}
		bus.back.Store(true)
		if ended, err := s.ends(other, time.Hour); !ended || err != nil {
			t.Errorf("when the bus was there: %v, %v", ended, err)
		}
		if _, err := s.ends(revoked, time.Hour); !errors.Is(err, task.ErrRevoked) || s.runs.Load() != 1 {
			t.Errorf("the revoked task: %v; %d tasks ran", err, s.runs.Load())
		}
		s.end()
	})
}

// warnings counts warnings in the log.
type warnings struct {
	slog.Handler
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.WriteString(r.Message + "\n")
	return nil
}

// TestSelectorsHaveALimit shows that more than MaxSelectors selectors remove those that end first,
// each with a warning. This holds for a list that received them one by one, and for one started
// later.
func TestSelectorsHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const over = 5
		bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
		defer bus.Close(context.Background())
		log := &warnings{Handler: slog.DiscardHandler}
		list, err := revoke.New(revoke.Config{Events: bus, Logger: slog.New(log)})
		if err != nil {
			t.Fatal(err)
		}
		ready(t, list)
		r := newRevoker(t, bus)
		tenant := func(i int) string { return fmt.Sprint("tenant-", i) }
		until := time.Now().Add(5 * 24 * time.Hour)
		for i := range revoke.MaxSelectors + over {
			if i%25 == 0 { // a Revoker reads the last hour; it need not read all events
				time.Sleep(61 * time.Minute)
			}
			o := revoke.Options{Until: until.Add(time.Duration(i) * time.Minute)}
			if err := r.RevokeMatching(t.Context(), o, revoke.Selector{Header: "tenant", Value: tenant(i)}); stored(err) != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		log.mu.Lock()
		if n := strings.Count(log.text.String(), "too many revocations"); n != over {
			t.Errorf("%d warnings, want %d:\n%s", n, over, log.text.String())
		}
		log.mu.Unlock()
		late := newList(t, revoke.Config{Events: bus.View()})
		ready(t, late)
		for name, l := range map[string]*revoke.List{"the list": list, "a later one": late} {
			for i := range revoke.MaxSelectors + over {
				e := &task.Envelope{ID: "x", Headers: map[string]string{"tenant": tenant(i)}}
				if got, err := l.Check(t.Context(), "q", e); err != nil || got != (i >= over) {
					t.Fatalf("%s says of %s: %v, %v", name, tenant(i), got, err)
				}
			}
		}
		if err := late.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := newSite(t, list)
		blue := s.submit("blue", task.WithHeader("tenant", tenant(revoke.MaxSelectors)))
		red := s.submit("red", task.WithHeader("tenant", tenant(0)))
		if _, err := s.ends(blue, time.Hour); !errors.Is(err, task.ErrRevoked) {
			t.Errorf("a task of the newest selector: %v", err)
		}
		if _, err := s.ends(red, time.Hour); err != nil {
			t.Errorf("a task of a selector that gave way: %v", err)
		}
		s.end()
	})
}
