package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/receive"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// bench returns a channel that consumes a queue with one message, without the goroutine of its
// stream.
func bench(t *testing.T) (b *Broker, queue string, g *channel, d *delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b, err := New(Config{Connect: amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}}})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	queue = testserver.Namespace()
	if err := b.Declare(ctx, broker.Queue{Name: queue}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	if err := b.Publish(ctx, queue, &broker.Message{ID: "m", Priority: defaultPriority}); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	s := &subscription{b: b, queue: queue}
	s.line = receive.NewLine(&s.mu, s.pop)
	s.fetch, s.end = context.WithCancel(ctx)
	t.Cleanup(s.end)
	s.addStreams(100, 0)
	st := s.streams[0]
	sess, err := b.con.Session(ctx)
	if err != nil {
		t.Fatalf("Session: %v", err)
	}
	ch, err := sess.Channel(ctx)
	if err != nil {
		t.Fatalf("Channel: %v", err)
	}
	g = newChannel(st, ch)
	if err := g.adjustConsumers(); err != nil {
		t.Fatalf("tune: %v", err)
	}
	got, err := s.Receive(ctx)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return b, queue, g, got.(*delivery)
}

// TestEndSendsTheLastAcks shows that close sends an acknowledgement that waits for others, while
// the AMQP channel is open.
func TestEndSendsTheLastAcks(t *testing.T) {
	b, queue, g, d := bench(t)
	g.mu.Lock()
	d.state = settled // does the same as Ack, before its timer fires
	g.ack(d, false)
	g.timer.Stop()
	g.mu.Unlock()
	g.close()
	err := b.con.Do(t.Context(), func(ch *amqp.Channel) error {
		m, ok, err := ch.Get(b.names.work(queue), true)
		if ok {
			t.Errorf("%q was acknowledged and is in the queue again", m.MessageId)
		}
		return err
	})
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
}

// TestClosedSubscriptionFetchesNothing shows that a new prefetch during or after Close starts no
// consumer, whose messages would be held without a receiver.
func TestClosedSubscriptionFetchesNothing(t *testing.T) {
	_, _, g, d := bench(t)
	defer g.close()
	if err := d.Ack(t.Context()); err != nil {
		t.Fatalf("Ack: %v", err)
	}
	g.st.sub.end()
	if err := g.stopFetching(); err != nil {
		t.Fatalf("cancelAll: %v", err)
	}
	if err := g.st.setPrefetch(t.Context(), 5); err != nil {
		t.Fatalf("setWant: %v", err)
	}
	if err := g.adjustConsumers(); err != nil {
		t.Fatalf("tune: %v", err)
	}
	g.rpc.Lock()
	defer g.rpc.Unlock()
	if n := len(g.consumers); n != 0 {
		t.Errorf("%d consumers were started after the end of the subscription", n)
	}
}

func TestDeliveryCountIsBounded(t *testing.T) {
	for _, tt := range []struct {
		redelivered bool
		header      any
		n           int
		exact       bool
	}{
		{false, nil, 1, true},
		{false, int64(9), 1, true},
		{true, nil, 2, false},
		{true, int64(4), 5, true},
		{true, int32(4), 5, true},
		{true, int64(-1), 2, false},
		{true, int64(math.MaxInt64), 2, false},
		{true, "many", 2, false},
	} {
		m := amqp.Delivery{Redelivered: tt.redelivered, Headers: amqp.Table{"x-delivery-count": tt.header}}
		if n, exact := deliveries(&m); n != tt.n || exact != tt.exact {
			t.Errorf("redelivered %v with a count of %v: %d, %v, want %d, %v", tt.redelivered, tt.header, n, exact, tt.n, tt.exact)
		}
	}
}

func TestOnlyAnEntryTellsTheLevels(t *testing.T) {
	entries := make(chan amqp.Delivery, 1)
	if _, err := awaitEntry(t.Context(), entries, time.Millisecond); !errors.Is(err, errNoLevels) || !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("a silent stream: %v, want errNoLevels", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := awaitEntry(ended, entries, time.Hour); !errors.Is(err, context.Canceled) || !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("a ctx that has ended: %v, want ErrUnavailable and its error", err)
	}
	entries <- amqp.Delivery{Body: []byte("10,100")}
	if body, err := awaitEntry(t.Context(), entries, time.Hour); string(body) != "10,100" || err != nil {
		t.Errorf("an entry: %q, %v", body, err)
	}
	close(entries)
	if _, err := awaitEntry(t.Context(), entries, time.Hour); !errors.Is(err, errNoReader) {
		t.Errorf("a channel that has ended: %v, want errNoReader", err)
	}
}

func TestClassesOfErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want []error
		not  error
	}{
		{fmt.Errorf("%w: %w", amqpconn.ErrIndeterminate, amqpconn.ErrAccess), []error{broker.ErrIndeterminate, broker.ErrAccess}, broker.ErrBlocked},
		{fmt.Errorf("%w: %w", amqpconn.ErrIndeterminate, amqpconn.ErrBlocked), []error{broker.ErrIndeterminate, broker.ErrBlocked}, broker.ErrAccess},
		{amqpconn.ErrIndeterminate, []error{broker.ErrIndeterminate}, broker.ErrAccess},
		{fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, amqpconn.ErrClosed), []error{broker.ErrUnavailable}, broker.ErrClosed},
		{amqpconn.ErrClosed, []error{broker.ErrClosed}, broker.ErrUnavailable},
	} {
		got := wrap(tt.err, "try", "q")
		for _, want := range tt.want {
			if !errors.Is(got, want) {
				t.Errorf("%v became %v, want %v", tt.err, got, want)
			}
		}
		if errors.Is(got, tt.not) {
			t.Errorf("%v became %v, which is no %v", tt.err, got, tt.not)
		}
	}
}
