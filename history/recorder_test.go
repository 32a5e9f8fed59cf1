package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/task"
)

// bench is a bus, a store and recorders on a test's clock.
type bench struct {
	*testing.T
	bus   *memevents.Bus
	store *switchStore
}

// switchStore is a store that fails while broken is set. It refuses tasks whose ids begin with
// "bad".
type switchStore struct {
	*memhistory.Store
	broken  atomic.Bool
	batches atomic.Int64
}

func (s *switchStore) Record(ctx context.Context, b *history.Batch) (time.Time, error) {
	if s.broken.Load() {
		return time.Time{}, history.ErrUnavailable
	}
	if slices.ContainsFunc(b.Facts, func(f *history.Facts) bool { return strings.HasPrefix(string(f.ID), "bad") }) {
		return time.Time{}, history.ErrRefused
	}
	if len(b.Facts) > 0 {
		s.batches.Add(1)
	}
	return s.Store.Record(ctx, b)
}

func newBench(t *testing.T, retain events.Retention) *bench {
	s, err := memhistory.New(memhistory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{T: t, bus: memevents.New(memevents.Config{Retain: retain}), store: &switchStore{Store: s}}
}

// start runs a recorder until stop is called. stop fails the test if Run returns an error.
func (b *bench) start(set ...func(c *history.RecorderConfig)) (r *history.Recorder, stop func()) {
	b.Helper()
	c := history.RecorderConfig{Bus: b.bus, Store: b.store, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range set {
		f(&c)
	}
	r, err := history.NewRecorder(c)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	return r, func() {
		b.Helper()
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("Run: %v", err)
		}
	}
}

func (b *bench) publish(from, n int) {
	b.Helper()
	for i := range n {
		b.send(task.ID(fmt.Sprint("t", from+i)))
	}
	synctest.Wait()
}

// send publishes that a task was sent.
func (b *bench) send(id task.ID) {
	b.Helper()
	if err := b.bus.PublishNow(events.Event{Type: events.TaskSent, TaskID: id, Time: time.Now(), Name: "n", Queue: "q"}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) page() history.Page {
	b.Helper()
	p, err := b.store.Page(b.Context(), history.Query{}, history.PageOptions{Limit: history.MaxPage})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (b *bench) want(n, gaps int) history.Page {
	b.Helper()
	p := b.page()
	if len(p.Records) != n || len(p.Gaps) != gaps {
		b.Errorf("%d records and gaps %v, want %d records and %d gaps", len(p.Records), p.Gaps, n, gaps)
	}
	return p
}

// TestRecorder shows that events wait for at most 100 ms, share a batch, and are written at the
// end.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		r, stop := b.start()
		b.publish(0, 50)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		b.want(50, 0)
		if n := b.store.batches.Load(); n != 1 {
			t.Errorf("%d batches", n)
		}
		b.publish(50, 999)
		if n := b.store.batches.Load(); n != 1 {
			t.Errorf("%d batches before a full one", n)
		}
		b.publish(1049, 1) // the thousandth does not wait for the time
		if n := b.store.batches.Load(); n != 2 {
			t.Errorf("%d batches after a full one", n)
		}
		b.publish(2000, 3)
		stop()
		if s := r.Stats(); s.Recorded != 1053 || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
		if _, err := b.store.Get(t.Context(), "t2002"); err != nil {
			t.Errorf("the last event: %v", err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, history.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
	})
}

// TestRecorders shows that several recorders write the same as a single one.
func TestRecorders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		_, stop1 := b.start()
		_, stop2 := b.start()
		b.publish(0, 10)
		time.Sleep(time.Second)
		stop1()
		b.publish(10, 10)
		stop2()
		b.want(20, 1) // the second could not know that the first was listening
		rows, err := b.store.Counts(t.Context(), history.CountQuery{})
		if err != nil || len(rows) != 1 || rows[0].N != 20 {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}

// TestRecorderDrops shows that a recorder whose store fails drops events beyond its limit, counts
// them, marks the time, and continues.
func TestRecorderDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		r, stop := b.start(func(c *history.RecorderConfig) { c.MaxWaiting = 10 })
		b.store.broken.Store(true)
		time.Sleep(time.Second) // a batch waits for the store now
		synctest.Wait()
		b.publish(0, 8)
		time.Sleep(time.Second)
		b.publish(100, 12)
		first := time.Now()
		time.Sleep(time.Second)
		b.store.broken.Store(false)
		time.Sleep(10 * time.Second)
		b.publish(200, 1)
		stop()
		p := b.want(11, 1)
		g := p.Gaps[0]
		if s := r.Stats(); s.Dropped != 10 || g.Dropped != 10 || g.Since.After(first) || g.Before.Before(first) || g.Before.Sub(g.Since) > 10*time.Second {
			t.Errorf("%+v, gap %+v, first dropped at %v", s, g, first)
		}
	})
}

// TestLastWriteFails shows that events of the last write count as dropped if the store refuses it,
// and not as recorded.
func TestLastWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		r, stop := b.start()
		b.publish(0, 2)
		time.Sleep(time.Second)
		b.store.broken.Store(true)
		b.publish(10, 3)
		b.publish(10, 3) // of the same tasks
		stop()
		if s := r.Stats(); s.Recorded != 2 || s.Dropped != 6 {
			t.Errorf("%+v, want 2 recorded and 6 dropped", s)
		}
	})
}

// TestRefused shows that events which the store refuses for good are skipped, counted and logged
// once for each batch. The other events, and the gap of their batch, are stored.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, logged := newBench(t, events.Retention{}), &bytes.Buffer{}
		quietly := func(c *history.RecorderConfig) { c.Logger = slog.New(slog.NewTextHandler(logged, nil)) }
		r, stop := b.start(quietly)
		b.publish(0, 500)
		for _, id := range []task.ID{"bad-1", "bad-1", "bad-2"} {
			b.send(id)
		}
		b.publish(500, 300)
		time.Sleep(time.Second)
		b.publish(900, 1) // the recorder continues
		stop()
		b.want(801, 0)
		if s := r.Stats(); s != (history.Stats{Recorded: 801, Refused: 3}) {
			t.Errorf("%+v, want 801 recorded and 3 refused", s)
		}
		if text := logged.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "events=3") || !strings.Contains(text, "task bad-") {
			t.Errorf("one line is logged for 3 refused events, with a task: %s", text)
		}
		time.Sleep(time.Hour)
		r, stop = b.start(quietly)
		b.send("bad-3") // in one batch with the gap
		synctest.Wait()
		stop()
		b.want(801, 1)
		if s := r.Stats(); s != (history.Stats{Refused: 1}) {
			t.Errorf("%+v, want 1 refused", s)
		}
	})
}

// TestRestart shows that a recorder marks the time in which none was listening.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		_, stop := b.start()
		b.publish(0, 5)
		stop()
		began := time.Now()
		b.publish(5, 5)
		time.Sleep(time.Hour)
		_, stop = b.start()
		b.publish(10, 5)
		stop()
		if g := b.want(10, 1).Gaps[0]; g.Since.After(began) || g.Before.Sub(g.Since) < time.Hour {
			t.Errorf("%+v", g)
		}
	})
}

// TestReplay shows that a recorder replays the events of the time in which none was listening.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{Age: 2 * time.Hour})
		b.publish(0, 5) // before the first recorder
		_, stop := b.start()
		b.publish(5, 5)
		stop()
		b.publish(10, 5)
		time.Sleep(time.Hour)
		_, stop = b.start()
		time.Sleep(time.Second)
		stop()
		b.want(15, 0)
		time.Sleep(3 * time.Hour)
		_, stop = b.start()
		stop()
		if g := b.want(15, 1).Gaps[0]; g.Before.Sub(g.Since) != time.Hour {
			t.Errorf("the bus retains two of three hours: %+v", g)
		}
	})
}

// TestClosedBus shows that Run returns the error of a bus that was closed.
func TestClosedBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		r, err := history.NewRecorder(history.RecorderConfig{Bus: b.bus, Store: b.store})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		synctest.Wait()
		if err := b.bus.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, events.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// TestRetention shows that a recorder deletes old records.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		_, stop := b.start(func(c *history.RecorderConfig) { c.MaxAge, c.MaxRecords = time.Hour, 1000 })
		b.publish(0, 2500)
		time.Sleep(2 * time.Minute)
		b.want(1000, 0)
		time.Sleep(time.Hour)
		b.want(0, 0)
		stop()
	})
}

func TestBadRecorder(t *testing.T) {
	if _, err := history.NewRecorder(history.RecorderConfig{MaxAge: -1}); err == nil {
		t.Error("no error")
	}
}

// lateBus is a bus that cannot be listened to: Subscribe waits until ctx ends.
type lateBus struct {
	*memevents.Bus
	asked chan struct{}
}

func (b lateBus) Subscribe(ctx context.Context, _ events.Filter) (events.Subscription, error) {
	close(b.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestRecorderStopsBeforeItListens shows that a recorder that is stopped while it waits for the
// bus ends without an error.
func TestRecorderStopsBeforeItListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, events.Retention{})
		bus := lateBus{b.bus, make(chan struct{})}
		_, stop := b.start(func(c *history.RecorderConfig) { c.Bus = bus })
		<-bus.asked
		stop()
	})
}
