package consumer_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestHeartbeats shows that consumers and producers send online, heartbeat and offline events with
// their counts (S38 to S42). Promises: S39, S40.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		listener, err := bus.Subscribe(t.Context(), events.Filter{Types: events.WorkerTypes()})
		if err != nil {
			t.Fatal(err)
		}
		b := newTable(t, func(c *consumer.Config) { c.Events, c.Report.NodeID = bus, "c-1" })
		slow := task.New[int, int]("slow")
		if err := slow.Handle(b.c, func(ctx context.Context, i int) (int, error) {
			time.Sleep(4 * time.Second)
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
		if b.p, err = producer.New(producer.Config{
			Broker: b.server.Connect(), Results: b.store, Events: bus, Report: events.Report{NodeID: "p-1", HeartbeatEvery: time.Hour, HeartbeatFields: func() map[string]any { return map[string]any{"zone": "b"} }},
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // New sends nothing
		b.run()
		time.Sleep(time.Second) // between the heartbeats from now on
		b.submit(1)
		if _, err := slow.Submit(t.Context(), b.p, 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // it has run for 4
		time.Sleep(time.Hour)
		b.end()
		type seen struct {
			Type, Node, Role string
			Active           int
			Processed        int64
		}
		var got []seen
		beats := 0
		for range 7200/4 + 4 + 5 {
			e, err := listener.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == events.WorkerHeartbeat && e.NodeID == "c-1" {
				if beats++; beats > 4 {
					if e.Worker.Processed != 2 || e.Worker.Active != 0 {
						t.Fatalf("heartbeat %d: %+v", beats, e.Worker)
					}
					continue
				}
			}
			if zone := e.Fields["zone"]; (zone == "b") != (e.Type == events.WorkerHeartbeat && e.NodeID == "p-1") {
				t.Errorf("%s of %s: zone %v", e.Type, e.NodeID, zone)
			}
			got = append(got, seen{e.Type, e.NodeID, e.Worker.Role, e.Worker.Active, e.Worker.Processed})
			if e.Type == events.WorkerOffline && e.NodeID == "p-1" {
				break
			}
		}
		want := []seen{
			{events.WorkerOnline, "c-1", "consumer", 0, 0},
			{events.WorkerOnline, "p-1", "producer", 0, 0},
			{events.WorkerHeartbeat, "c-1", "consumer", 1, 1},
			{events.WorkerHeartbeat, "c-1", "consumer", 1, 1},
			{events.WorkerHeartbeat, "c-1", "consumer", 0, 2},
			{events.WorkerHeartbeat, "c-1", "consumer", 0, 2},
			{events.WorkerHeartbeat, "p-1", "producer", 0, 2},
			{events.WorkerOffline, "c-1", "consumer", 0, 2},
			{events.WorkerOffline, "p-1", "producer", 0, 2},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if beats < 1800 {
			t.Errorf("%d heartbeats in an hour, want one every 2 s", beats)
		}
	})
}

func TestHeartbeatEveryIsChecked(t *testing.T) {
	if _, err := consumer.New(consumer.Config{Broker: membroker.New(), Report: events.Report{HeartbeatEvery: time.Millisecond}}); err == nil {
		t.Error("a consumer with a heartbeat every millisecond")
	}
	if _, err := producer.New(producer.Config{Broker: membroker.New(), Report: events.Report{HeartbeatEvery: 1}}); err == nil {
		t.Error("a producer with a heartbeat every nanosecond")
	}
}

// stuckBus is a bus whose Publish blocks until it is released.
type stuckBus struct {
	deadBus
	release chan struct{}
}

func (b stuckBus) Publish(context.Context, events.Event) error {
	<-b.release
	return nil
}

// brokenBus is a bus whose Publish panics.
type brokenBus struct{ deadBus }

func (brokenBus) Publish(context.Context, events.Event) error { panic("a mistake in the bus") }

// TestEventBusMisbehaves shows that tasks do not take longer if the bus blocks or panics (S36,
// G12).
func TestEventBusMisbehaves(t *testing.T) {
	const n = 5000
	for name, bus := range map[string]func() (events.EventBus, func()){
		"stuck": func() (events.EventBus, func()) {
			b := stuckBus{release: make(chan struct{})}
			return b, func() { close(b.release) }
		},
		"panicking": func() (events.EventBus, func()) { return brokenBus{}, func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, release := bus()
				b := newTable(t, func(c *consumer.Config) { c.Events, c.Report.HeartbeatEvery = bad, time.Hour })
				var err error
				b.p, err = producer.New(producer.Config{Broker: b.server.Connect(), Results: b.store, Events: bad, Report: events.Report{HeartbeatEvery: time.Hour}, Metrics: b.metrics, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				b.run()
				begin := time.Now()
				args := make([]int, n)
				futures, err := echo.SubmitAll(t.Context(), b.p, args)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range futures {
					if _, err := f.Get(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				// in the bubble time passes only when all goroutines wait
				if took := time.Since(begin); took > 0 {
					t.Errorf("the tasks waited %v for the bus", took)
				}
				b.end()
				release()
				synctest.Wait()
				// Four events per task (sent, received, started, succeeded) and online and offline of both
				// sides. Each side still has one event in the stuck bus.
				want := int64(4*n + 4)
				if name == "stuck" {
					want -= 2
				}
				if got := b.metrics.Dropped.Count(); got != want {
					t.Errorf("%d events counted as lost, want %d", got, want)
				}
			})
		})
	}
}
