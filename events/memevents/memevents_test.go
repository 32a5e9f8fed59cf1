package memevents_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/events/memevents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(t testing.TB) *eventstest.Harness {
	const buffer = 1000
	open := func(r events.Retention) *memevents.Bus {
		b := memevents.New(memevents.Config{Buffer: buffer, Retain: r})
		t.Cleanup(func() {
			if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return b
	}
	first := open(events.Retention{})
	var keeping *memevents.Bus
	return &eventstest.Harness{
		Open: func(testing.TB) events.EventBus { return first.View() },
		Retain: func(_ testing.TB, r events.Retention) events.EventBus {
			if keeping == nil {
				keeping = open(r)
			}
			return keeping.View()
		},
		Report: "../../docs/capabilities/events-memory.json",
		Buffer: buffer,
		Quiet:  100 * time.Millisecond,
	}
}

func TestBus(t *testing.T) { eventstest.Run(t, harness) }

func BenchmarkBus(b *testing.B) { eventstest.Bench(b, harness) }

func TestViewOfAClosedBusIsClosed(t *testing.T) {
	b := memevents.New(memevents.Config{})
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.View().Publish(t.Context(), events.Event{Type: "x"}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Publish returned %v, want ErrClosed", err)
	}
}
