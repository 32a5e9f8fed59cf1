package revoke_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newList(t *testing.T, c revoke.Config) *revoke.List {
	t.Helper()
	c.Logger = quiet()
	l, err := revoke.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func newRevoker(t *testing.T, bus events.EventBus) *revoke.Revoker {
	t.Helper()
	r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ready(t *testing.T, l *revoke.List) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		t.Fatalf("Ready: %v", err)
	}
}

// stored returns the error of Revoke, ignoring ErrUnheard, for tests without consumers.
func stored(err error) error {
	if errors.Is(err, revoke.ErrUnheard) {
		return nil
	}
	return err
}

func check(t *testing.T, l *revoke.List, id task.ID, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := l.Check(ctx, "q", &task.Envelope{ID: id})
	if err != nil || got != want {
		t.Fatalf("%s is revoked: %v, %v; want %v", id, got, err, want)
	}
}

// counting counts the replays of a bus.
type counting struct {
	*memevents.Bus
	replays atomic.Int64
}

func (c *counting) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	c.replays.Add(1)
	return c.Bus.Replay(ctx, f, since)
}

// TestOldOnesAreAskedFor shows that a list with more than Max ids asks the bus for older ones. For
// an id that was not revoked it rarely asks.
func TestOldOnesAreAskedFor(t *testing.T) {
	bus := &counting{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
	defer bus.Close(context.Background())
	l := newList(t, revoke.Config{Events: bus, Max: 500})
	ready(t, l)
	r := newRevoker(t, bus)
	var ids []task.ID
	for i := range 3000 {
		ids = append(ids, task.ID(fmt.Sprintf("old-%d", i)))
	}
	if _, err := r.Revoke(t.Context(), revoke.Options{}, ids...); stored(err) != nil {
		t.Fatal(err)
	}
	last := &task.Envelope{ID: ids[len(ids)-1]}
	for end := time.Now().Add(20 * time.Second); !l.Knows("q", last) && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
	before := bus.replays.Load()
	for i := range 20 {
		check(t, l, ids[i*100], true)
	}
	if asked := bus.replays.Load() - before; asked == 0 || asked > 20 {
		t.Errorf("20 looks at old ids asked the bus %d times", asked)
	}
	before = bus.replays.Load()
	for i := range 5000 {
		check(t, l, task.ID(fmt.Sprintf("never-%d", i)), false)
	}
	if asked := bus.replays.Load() - before; asked > 5 {
		t.Errorf("5,000 looks at ids that were not revoked asked the bus %d times", asked)
	}
}

// TestLivesThreeHoursLonger shows that a revocation lasts until 3 h after its Until.
func TestLivesThreeHoursLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
		defer bus.Close(context.Background())
		l := newList(t, revoke.Config{Events: bus})
		ready(t, l)
		r := newRevoker(t, bus)
		until := time.Now().Add(2 * 24 * time.Hour) // the due time of a delayed task
		if _, err := r.Revoke(t.Context(), revoke.Options{Until: until}, "delayed"); stored(err) != nil {
			t.Fatal(err)
		}
		if _, err := r.Revoke(t.Context(), revoke.Options{Until: time.Now()}, "due"); stored(err) != nil {
			t.Fatal(err)
		}
		time.Sleep(3*time.Hour - time.Minute)
		check(t, l, "due", true)
		time.Sleep(2 * time.Minute)
		check(t, l, "due", false)
		time.Sleep(time.Until(until.Add(3*time.Hour - time.Minute)))
		check(t, l, "delayed", true)
		late := newList(t, revoke.Config{Events: bus.View()})
		ready(t, late)
		check(t, late, "delayed", true)
		time.Sleep(2 * time.Minute)
		check(t, l, "delayed", false)
		check(t, late, "delayed", false)
		if err := late.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := r.Revoke(t.Context(), revoke.Options{Until: time.Now().Add(revoke.DefaultAge)}, "x")
		if !errors.Is(err, revoke.ErrTooLong) {
			t.Fatalf("a revocation that outlives what the bus keeps: %v", err)
		}
	})
}

// away is a bus whose server does not answer.
type away struct {
	*memevents.Bus
	back atomic.Bool
}

func (a *away) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if !a.back.Load() {
		<-ctx.Done()
		return nil, events.ErrUnavailable
	}
	return a.Bus.Replay(ctx, f, since)
}

// TestReadyWaits shows that Ready waits until the bus has sent the stored revocations, at most for
// StartLimit.
func TestReadyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &away{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
		defer bus.Close(context.Background())
		if _, err := newRevoker(t, bus.Bus).Revoke(t.Context(), revoke.Options{}, "1"); stored(err) != nil {
			t.Fatal(err)
		}
		patient, hasty := newList(t, revoke.Config{Events: bus}), newList(t, revoke.Config{Events: bus, StartLimit: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := patient.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Ready without the bus: %v", err)
		}
		began := time.Now()
		if err := hasty.Ready(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Fatalf("Ready with a limit: %v after %v", err, time.Since(began))
		}
		bus.back.Store(true)
		if err := patient.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, patient, "1", true)
		_, err := newRevoker(t, &away{Bus: bus.Bus}).Revoke(t.Context(), revoke.Options{}, "2")
		if !errors.Is(err, events.ErrUnavailable) {
			t.Fatalf("Revoke without the bus: %v", err)
		}
		for _, l := range []*revoke.List{patient, hasty} {
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// lossy is a bus that loses the first events.
type lossy struct {
	*memevents.Bus
	left atomic.Int64
}

func (l *lossy) Publish(ctx context.Context, e events.Event) error {
	if l.left.Add(-1) >= 0 {
		return nil
	}
	return l.Bus.Publish(ctx, e)
}

// TestLostEventsAreSentAgain shows that Revoke returns only when the bus has stored the revocation.
func TestLostEventsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &lossy{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
		defer bus.Close(context.Background())
		bus.left.Store(2)
		if _, err := newRevoker(t, bus).Revoke(t.Context(), revoke.Options{}, "1"); stored(err) != nil {
			t.Fatal(err)
		}
		bus.left.Store(1)
		l := newList(t, revoke.Config{Events: bus})
		ready(t, l)
		check(t, l, "1", true)
		bus.left.Store(1 << 40)
		if _, err := newRevoker(t, bus).Revoke(t.Context(), revoke.Options{}, "2"); !errors.Is(err, revoke.ErrUnconfirmed) {
			t.Fatalf("a bus that loses everything: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// unkeeping is a bus that is not a Retainer.
type unkeeping struct{ events.EventBus }

func TestBusThatKeepsNothing(t *testing.T) {
	mem := memevents.New(memevents.Config{})
	defer mem.Close(context.Background())
	bus := unkeeping{mem}
	for _, b := range []events.EventBus{bus, mem, nil} {
		if _, err := revoke.New(revoke.Config{Events: b}); err == nil || b != nil && !errors.Is(err, events.ErrNotRetained) {
			t.Errorf("a list on %T: %v", b, err)
		}
		if _, err := revoke.NewRevoker(revoke.RevokerConfig{Events: b}); err == nil || b != nil && !errors.Is(err, events.ErrNotRetained) {
			t.Errorf("a Revoker on %T: %v", b, err)
		}
	}
	l := newList(t, revoke.Config{Events: bus, Live: true})
	ready(t, l)
	heard := make(chan revoke.Revocation, 1)
	stop := l.Watch(func(v revoke.Revocation) { heard <- v })
	defer stop()
	r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus, Live: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Revoke(t.Context(), revoke.Options{Terminate: true}, "1"); stored(err) != nil {
		t.Fatal(err)
	}
	select {
	case v := <-heard:
		if !v.Terminate || !v.Match("q", &task.Envelope{ID: "1"}) || v.Match("q", &task.Envelope{ID: "2"}) {
			t.Errorf("heard %+v", v)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the revocation was not heard")
	}
	check(t, l, "1", true)
	late := newList(t, revoke.Config{Events: bus, Live: true})
	ready(t, late)
	check(t, late, "1", false)
}

func TestRefusals(t *testing.T) {
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	defer bus.Close(context.Background())
	r := newRevoker(t, bus)
	if _, err := r.Revoke(t.Context(), revoke.Options{}, "good", "not good"); !errors.Is(err, task.ErrBadID) {
		t.Errorf("a bad id: %v", err)
	}
	for _, s := range []revoke.Selector{{}, {Value: "x"}, {SentBefore: time.Now()}, {Name: "a\xff"}} {
		if err := r.RevokeMatching(t.Context(), revoke.Options{}, s); !errors.Is(err, revoke.ErrBadSelector) {
			t.Errorf("selector %+v: %v", s, err)
		}
	}
}
