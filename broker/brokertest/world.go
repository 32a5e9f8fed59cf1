package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// world is what a case works with: a namespace, the brokers opened in it, and bounded waits.
type world struct {
	testing.TB
	h               *Harness
	slack, patience time.Duration

	mu     sync.Mutex
	opened []broker.Broker
}

func newWorld(t testing.TB, h *Harness) *world {
	w := &world{TB: t, h: h, slack: h.Slack, patience: h.Patience}
	if w.slack == 0 {
		w.slack = 500 * time.Millisecond
	}
	if w.patience == 0 {
		w.patience = 30 * time.Second
	}
	return w
}

// open connects as another process would.
func (w *world) open() broker.Broker {
	w.Helper()
	b := w.h.Open(w.TB)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, b)
	return b
}

// close closes every broker of the case.
func (w *world) close() {
	w.Helper()
	w.mu.Lock()
	bs := w.opened
	w.opened = nil
	w.mu.Unlock()
	for _, b := range bs {
		ctx, cancel := w.ctx()
		if err := w.clean(b.Close(ctx)); err != nil {
			w.Errorf("Broker.Close: %v", err)
		}
		cancel()
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
func (w *world) wantIs(err error, want error, format string, args ...any) {
	w.Helper()
	if !errors.Is(w.clean(err), want) {
		w.Errorf("%s: got error %v, want one that is %v", fmt.Sprintf(format, args...), err, want)
	}
}

// queue returns the full name of a queue after having made it exist.
func (w *world) queue(b broker.Broker, name string, levels ...int) string {
	w.Helper()
	q := w.h.Prefix + name
	ctx, cancel := w.ctx()
	defer cancel()
	w.must(broker.Declare(ctx, b, broker.Queue{Name: q, Levels: levels}), "Declare(%q)", q)
	if _, ok := broker.As[broker.Declarer](b); !ok {
		s, err := b.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: 1})
		w.must(err, "Subscribe(%q)", q)
		w.must(s.Close(ctx), "Subscription.Close")
	}
	return q
}

// publish publishes and expects success.
func (w *world) publish(b broker.Broker, queue string, ms ...*broker.Message) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	for _, m := range ms {
		w.must(b.Publish(ctx, queue, m), "Publish(%q, %q)", queue, m.ID)
	}
}

// subscribe opens a subscription with the given prefetch.
func (w *world) subscribe(b broker.Broker, queue string, prefetch int) broker.Subscription {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: prefetch, Lease: w.h.Leases})
	w.must(err, "Subscribe(%q)", queue)
	return s
}

// receive waits for the next delivery.
func (w *world) receive(s broker.Subscription) broker.Delivery {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	d, err := s.Receive(ctx)
	w.must(err, "Receive")
	return d
}

// receiveN waits for n deliveries.
func (w *world) receiveN(s broker.Subscription, n int) []broker.Delivery {
	w.Helper()
	ds := make([]broker.Delivery, n)
	for i := range ds {
		ds[i] = w.receive(s)
	}
	return ds
}

// nothing expects that no delivery comes for as long as the suite looks.
func (w *world) nothing(s broker.Subscription, format string, args ...any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.slack)
	defer cancel()
	d, err := s.Receive(ctx)
	if err == nil {
		w.Fatalf("%s: received %s", fmt.Sprintf(format, args...), name(d.Message()))
	}
	w.wantIs(err, context.DeadlineExceeded, "Receive of an empty queue")
}

// ack acknowledges each delivery.
func (w *world) ack(ds ...broker.Delivery) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	for _, d := range ds {
		w.must(d.Ack(ctx), "Ack(%s)", name(d.Message()))
	}
}

// closeSub closes a subscription.
func (w *world) closeSub(s broker.Subscription) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	w.must(s.Close(ctx), "Subscription.Close")
}

// closeBroker closes a broker.
func (w *world) closeBroker(b broker.Broker) {
	w.Helper()
	ctx, cancel := w.ctx()
	defer cancel()
	w.must(b.Close(ctx), "Broker.Close")
}

// await waits for ch to be closed.
func (w *world) await(ch <-chan struct{}, what string) {
	w.Helper()
	t := time.NewTimer(w.patience)
	defer t.Stop()
	select {
	case <-ch:
	case <-t.C:
		w.Fatalf("%s: not within %v", what, w.patience)
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

// msg makes a plain message.
func msg(id string) *broker.Message {
	return &broker.Message{ID: id, ContentType: "text/plain", Body: []byte("body of " + id), Priority: 100}
}

// msgs makes n plain messages with the ids prefix-0 to prefix-(n-1).
func msgs(prefix string, n int) []*broker.Message {
	ms := make([]*broker.Message, n)
	for i := range ms {
		ms[i] = msg(fmt.Sprintf("%s-%d", prefix, i))
	}
	return ms
}

// name names a message as the port does: by ID and Generation.
func name(m *broker.Message) string { return fmt.Sprintf("%s/%d", m.ID, m.Generation) }
