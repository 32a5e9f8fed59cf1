package eventstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// world is what a case works with: a namespace, the buses opened in it, and bounded waits.
type world struct {
	testing.TB
	h               *Harness
	slack, patience time.Duration
	buffer          int

	mu     sync.Mutex
	opened []events.EventBus
	ids    int
}

func newWorld(t testing.TB, h *Harness) *world {
	w := &world{TB: t, h: h, slack: h.Slack, patience: h.Patience, buffer: h.Buffer}
	if w.slack == 0 {
		w.slack = 500 * time.Millisecond
	}
	if w.patience == 0 {
		w.patience = 30 * time.Second
	}
	if w.buffer == 0 {
		w.buffer = 8192
	}
	return w
}

// open connects as another process would.
func (w *world) open() events.EventBus {
	w.Helper()
	b := w.h.Open(w.TB)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, b)
	return b
}

// close closes every bus of the case.
func (w *world) close() {
	w.Helper()
	w.mu.Lock()
	opened := w.opened
	w.opened = nil
	w.mu.Unlock()
	for _, b := range opened {
		w.closeBus(b)
	}
}

func (w *world) closeBus(b events.EventBus) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	if err := w.clean(b.Close(ctx)); err != nil {
		w.Errorf("EventBus.Close: %v", err)
	}
}

// ctx is a context that ends with the suite's patience.
func (w *world) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.patience)
}

// clean returns err and fails the case if the secret is in it.
func (w *world) clean(err error) error {
	w.Helper()
	if err != nil && w.h.Secret != "" && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), w.h.Secret) {
		w.Errorf("the text of a %T holds the password", err)
	}
	return err
}

// must fails the case at once if err is not nil.
func (w *world) must(err error, format string, args ...any) {
	w.Helper()
	if w.clean(err) != nil {
		w.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// wantIs checks the class of an error.
func (w *world) wantIs(err, want error, format string, args ...any) {
	w.Helper()
	if !errors.Is(w.clean(err), want) {
		w.Errorf("%s: got error %v, want one that is %v", fmt.Sprintf(format, args...), err, want)
	}
}

// event makes a plain event of a task that no other call named.
func (w *world) event() events.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return events.Event{
		Type: events.TaskStarted, TaskID: task.ID(fmt.Sprintf("task-%06d", w.ids)), NodeID: "node-1",
		Time: time.UnixMilli(1_795_190_645_678).UTC(), PID: 4711,
	}
}

// send publishes n plain events in order, and returns them.
func (w *world) send(b events.EventBus, n int) []events.Event {
	w.Helper()
	es := make([]events.Event, n)
	for i := range es {
		es[i] = w.event()
		w.publish(b, es[i])
	}
	return es
}

func (w *world) publish(b events.EventBus, e events.Event) {
	w.Helper()
	w.must(b.Publish(context.Background(), e), "Publish of %s", show(e))
}

func (w *world) subscribe(b events.EventBus, f events.Filter) events.Subscription {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	s, err := b.Subscribe(ctx, f)
	w.must(err, "Subscribe")
	return s
}

// all subscribes to every event.
func (w *world) all(b events.EventBus) events.Subscription {
	w.Helper()
	return w.subscribe(b, events.Filter{})
}

// receive waits for the next event.
func (w *world) receive(s events.Subscription) events.Event {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	e, err := s.Receive(ctx)
	w.must(err, "Receive")
	return e
}

// wantAll receives exactly these events, in their order.
func (w *world) wantAll(s events.Subscription, want []events.Event, format string, args ...any) {
	w.Helper()
	for i, e := range want {
		if got := w.receive(s); got.TaskID != e.TaskID || got.Type != e.Type {
			w.Fatalf("%s: event %d is %s, want %s", fmt.Sprintf(format, args...), i, show(got), show(e))
		}
	}
}

// nothing expects that no event comes for as long as the suite looks.
func (w *world) nothing(s events.Subscription, format string, args ...any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.slack)
	defer cancel()
	e, err := s.Receive(ctx)
	if err == nil {
		w.Fatalf("%s: received %s", fmt.Sprintf(format, args...), show(e))
	}
	w.wantIs(err, context.DeadlineExceeded, "Receive while there is nothing")
}

func (w *world) closeSub(s events.Subscription) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	w.must(s.Close(ctx), "Subscription.Close")
}

// flows publishes until one of the events arrives: after a fault those of the time between are missed, and nobody says
// when it is over. It returns when the subscription has nothing more.
func (w *world) flows(b events.EventBus, s events.Subscription, what string) {
	w.Helper()
	sent := map[task.ID]bool{}
	deadline := time.Now().Add(w.patience)
	for arrived := false; !arrived; {
		if time.Now().After(deadline) {
			w.Fatalf("%s: no event came within %v", what, w.patience)
		}
		sent[w.send(b, 1)[0].TaskID] = true
		ctx, cancel := context.WithTimeout(context.Background(), w.slack/4)
		e, err := s.Receive(ctx)
		cancel()
		if err != nil {
			w.wantIs(err, context.DeadlineExceeded, "%s: Receive", what)
		}
		arrived = sent[e.TaskID]
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), w.slack)
		_, err := s.Receive(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// ends waits for a value that another goroutine promised.
func ends[T any](w *world, ch <-chan T, what string) T {
	w.Helper()
	t := time.NewTimer(w.patience)
	defer t.Stop()
	select {
	case v := <-ch:
		return v
	case <-t.C:
		w.Fatalf("%s: not within %v", what, w.patience)
		panic("unreachable")
	}
}

// until polls cond until it holds.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	deadline := time.NewTimer(w.patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.Fatalf("%s: not within %v", what, w.patience)
		}
	}
}

// show names an event in failures.
func show(e events.Event) string { return fmt.Sprintf("%s of %q", e.Type, e.TaskID) }
