package eventsettings_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/eventsettings"
	"github.com/swarmiji/swarmiji/settings/settingstest"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

// owner is a Store that closes its bus.
type owner struct {
	*eventsettings.Store
	bus events.EventBus
}

func (o owner) Close(ctx context.Context) error {
	return joined(o.Store.Close(ctx), o.bus.Close(ctx))
}

func joined(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func store(t testing.TB, bus events.EventBus, node string) owner {
	t.Helper()
	s, err := eventsettings.New(eventsettings.Config{Events: bus, NodeID: node, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return owner{s, bus}
}

func TestRabbit(t *testing.T) {
	settingstest.Run(t, func(t testing.TB) *settingstest.Harness {
		srv := testserver.RequireRabbit(t)
		line := testserver.NewRelay(t, srv.Addr())
		ns := testserver.Namespace()
		bus := func(t testing.TB) events.EventBus {
			bus, err := amqpevents.New(amqpevents.Config{
				Connect:   amqpconnect.Config{URLs: []string{line.URL(srv.URL())}, Backoff: task.Backoff{Max: 500 * time.Millisecond}},
				Namespace: ns, Logger: slog.New(slog.DiscardHandler), Retain: eventsettings.Retention(),
			})
			if err != nil {
				t.Fatal(err)
			}
			return bus
		}
		return &settingstest.Harness{
			Open:    func(t testing.TB) settings.Store { return store(t, bus(t), "") },
			Foreign: func(t testing.TB) { foreign(t, bus(t)) },
			Sever:   func(testing.TB) { line.Sever() },
			Restart: func(t testing.TB) {
				if err := srv.Restart(testwait.Long(t)); err != nil {
					t.Fatal(err)
				}
			},
			Down: func(testing.TB) func() {
				line.SetDown(true)
				return func() { line.SetDown(false) }
			},
			Secret:   srv.Password(),
			Promises: settingstest.Promises{Durable: true},
			Report:   "../../docs/capabilities/settings-amqp.json",
		}
	})
}

// foreign publishes events of the type of settings as another program would. It closes the bus.
func foreign(t testing.TB, bus events.EventBus) {
	t.Helper()
	ctx := testwait.Long(t)
	for _, fields := range []map[string]any{
		{"key": "not a key", "revision": "9", "data": []any{"e30="}},
		{"key": "queue/q/pause", "revision": "nine", "data": []any{"e30="}},
		{"key": "queue/q/pause", "revision": "9", "data": []any{"no base64"}},
		{"key": "a", "revision": "9", "data": "e30="},   // not a deletion
		{"key": "a", "revision": "9", "data": []any{7}}, // not an empty value
		nil,
	} {
		if err := bus.Publish(ctx, events.Event{Type: "setting", NodeID: "foreign", Fields: fields}); err != nil {
			t.Fatal(err)
		}
	}
	if err := bus.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestMemory(t *testing.T) {
	settingstest.Run(t, func(t testing.TB) *settingstest.Harness {
		hub := memevents.New(memevents.Config{Retain: eventsettings.Retention()})
		return &settingstest.Harness{
			Open:    func(t testing.TB) settings.Store { return store(t, hub.View(), "") },
			Foreign: func(t testing.TB) { foreign(t, hub.View()) },
		}
	})
}

// TestRenewal shows that values are kept for as long as one process runs. A deleted value does not
// come back.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		hub := memevents.New(memevents.Config{Retain: eventsettings.Retention()})
		a := store(t, hub.View(), "a")
		defer a.Close(ctx)
		if _, err := a.Put(ctx, "kept", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		gone, err := a.Put(ctx, "gone", []byte("1"), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Delete(ctx, "gone", gone); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(eventsettings.DefaultAge) // in the bubble's time
			late := store(t, hub.View(), "late")
			all, err := late.List(ctx, "")
			if err != nil || len(all) != 1 || all[0].Key != "kept" || string(all[0].Data) != "1" {
				t.Fatalf("%+v, %v", all, err)
			}
			if err := late.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestStaleRenewal shows that a deleted value stays deleted although a process that missed the
// deletion writes it again.
func TestStaleRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		hub := memevents.New(memevents.Config{Retain: eventsettings.Retention()})
		a, raw := store(t, hub.View(), "a"), hub.View()
		defer a.Close(ctx)
		defer raw.Close(ctx)
		sub, err := raw.Subscribe(ctx, events.Filter{Types: []string{"setting"}})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close(ctx)
		revision, err := a.Put(ctx, "x", []byte("old"), 0)
		if err != nil {
			t.Fatal(err)
		}
		var old events.Event
		for old.Fields["key"] != "x" {
			if old, err = sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Delete(ctx, "x", revision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // in the bubble's time
		old.Time = time.Now()
		if err := raw.Publish(ctx, old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(eventsettings.DefaultAge - time.Minute) // the event of the deletion is forgotten
		late := store(t, hub.View(), "late")
		defer late.Close(ctx)
		if all, err := late.List(ctx, ""); err != nil || len(all) != 0 {
			t.Fatalf("%+v, %v", all, err)
		}
	})
}

// TestLastWriter shows that of two changes of one revision that of the greater node stays, for all
// processes and in any order.
func TestLastWriter(t *testing.T) {
	ctx := testwait.Long(t)
	hub := memevents.New(memevents.Config{Retain: eventsettings.Retention()})
	a, b := store(t, hub.View(), "a"), store(t, hub.View(), "b")
	defer a.Close(ctx)
	defer b.Close(ctx)
	// both begin with the same state
	for _, s := range []owner{a, b} {
		if _, err := s.List(ctx, ""); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 2)
	for name, s := range map[string]owner{"a": a, "b": b} {
		go func() {
			_, err := s.Put(ctx, "x", []byte(name), 0)
			ended <- err
		}()
	}
	wins := 0
	for range 2 {
		if <-ended == nil {
			wins++
		}
	}
	if wins == 0 {
		t.Fatal("no change succeeded")
	}
	late := store(t, hub.View(), "late")
	defer late.Close(ctx)
	want, err := late.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []owner{a, b} {
		testwait.Until(t, "the same value everywhere", func() bool {
			v, err := s.Get(ctx, "x")
			return err == nil && string(v.Data) == string(want.Data)
		})
	}
}

func TestNewRefuses(t *testing.T) {
	bus := memevents.New(memevents.Config{})
	defer bus.Close(t.Context())
	_, err := eventsettings.New(eventsettings.Config{Events: bus, NodeID: "a b"})
	if err == nil || !strings.Contains(err.Error(), "retain") || !strings.Contains(err.Error(), "NodeID") {
		t.Errorf("%v", err)
	}
}
