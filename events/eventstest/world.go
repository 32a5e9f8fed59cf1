package eventstest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/task"
)

// world holds the namespace of a case, the buses opened in it, and helpers with limited waits.
type world struct {
	*suite.World[events.EventBus]
	h      *Harness
	buffer int

	mu  sync.Mutex
	ids int
}

// newWorld returns the world of a case, without buses.
func newWorld(t testing.TB, h *Harness) *world {
	w := &world{h: h, buffer: h.Buffer}
	w.World = suite.NewWorld(t, suite.Config[events.EventBus]{
		Port: "EventBus", Open: h.Open, Secret: h.Secret, Slack: h.Slack, Quiet: h.Quiet, Patience: h.Patience,
	})
	if w.buffer == 0 {
		w.buffer = 8192
	}
	return w
}

// event returns a simple event of a new task. It takes w.mu. Safe for concurrent use.
func (w *world) event() events.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return events.Event{
		Type: events.TaskStarted, TaskID: task.ID(fmt.Sprintf("task-%06d", w.ids)), NodeID: "node-1",
		Time: time.UnixMilli(1_795_190_645_678).UTC(), PID: 4711,
	}
}

// send publishes n simple events in order and returns them.
func (w *world) send(b events.EventBus, n int) []events.Event {
	w.Helper()
	es := make([]events.Event, n)
	for i := range es {
		es[i] = w.event()
		w.publish(b, es[i])
	}
	return es
}

// publish publishes e on b and fails the case on an error.
func (w *world) publish(b events.EventBus, e events.Event) {
	w.Helper()
	w.Must(b.Publish(context.Background(), e), "Publish of %s", show(e))
}

// subscribe calls Subscribe and fails the case on an error.
func (w *world) subscribe(b events.EventBus, f events.Filter) events.Subscription {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	s, err := b.Subscribe(ctx, f)
	w.Must(err, "Subscribe")
	return s
}

// all subscribes to every event.
func (w *world) all(b events.EventBus) events.Subscription {
	w.Helper()
	return w.subscribe(b, events.Filter{})
}

// receive waits for the next event and returns it. It fails the case on an error.
func (w *world) receive(s events.Subscription) events.Event {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	e, err := s.Receive(ctx)
	w.Must(err, "Receive")
	return e
}

// wantAll receives events from s and fails the case unless they are those of want, in the same
// order. It compares task and type only.
func (w *world) wantAll(s events.Subscription, want []events.Event, format string, args ...any) {
	w.Helper()
	for i, e := range want {
		if got := w.receive(s); got.TaskID != e.TaskID || got.Type != e.Type {
			w.Fatalf("%s: event %d is %s, want %s", fmt.Sprintf(format, args...), i, show(got), show(e))
		}
	}
}

// nothing fails the case if an event arrives within Quiet.
func (w *world) nothing(s events.Subscription, format string, args ...any) {
	w.Helper()
	w.nothingAll([]events.Subscription{s}, format, args...)
}

// nothingAll does the same as nothing for several subscriptions at the same time.
func (w *world) nothingAll(subs []events.Subscription, format string, args ...any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
	defer cancel()
	var looks sync.WaitGroup
	for i, s := range subs {
		looks.Go(func() {
			e, err := s.Receive(ctx)
			if err == nil {
				w.Errorf("%s: subscription %d received %s", fmt.Sprintf(format, args...), i, show(e))
				return
			}
			w.WantIs(err, context.DeadlineExceeded, "Receive while there is nothing")
		})
	}
	looks.Wait()
}

// closeSub closes a subscription and fails the case on an error.
func (w *world) closeSub(s events.Subscription) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Close(ctx), "Subscription.Close")
}

// flows publishes events on b until one of them arrives on s: events during a fault are missed, and
// the end of the fault is unknown. Then it receives events until none comes within Quiet. It fails
// the case if none arrives within Patience; what names the situation.
func (w *world) flows(b events.EventBus, s events.Subscription, what string) {
	w.Helper()
	sent := map[task.ID]bool{}
	deadline := time.Now().Add(w.Patience)
	for arrived := false; !arrived; {
		if time.Now().After(deadline) {
			w.Fatalf("%s: no event came within %v", what, w.Patience)
		}
		sent[w.send(b, 1)[0].TaskID] = true
		ctx, cancel := context.WithTimeout(context.Background(), w.Quiet/4)
		e, err := s.Receive(ctx)
		cancel()
		if err != nil {
			w.WantIs(err, context.DeadlineExceeded, "%s: Receive", what)
		}
		arrived = sent[e.TaskID]
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
		_, err := s.Receive(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// show returns the text for an event in failure messages.
func show(e events.Event) string { return fmt.Sprintf("%s of %q", e.Type, e.TaskID) }
