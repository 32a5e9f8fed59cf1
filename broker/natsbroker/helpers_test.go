package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// connect opens a Broker and closes it at the end of the test. Without settings in cfg it uses the
// shared server and a new namespace.
func connect(t testing.TB, cfg natsbroker.Config) *natsbroker.Broker {
	t.Helper()
	if cfg.Connect.URLs == nil && cfg.Connect.InProcess == nil {
		cfg.Connect.URLs = []string{testserver.RequireNATS(t).URL()}
	}
	if cfg.Namespace == "" {
		cfg.Namespace = testserver.Namespace()
	}
	b := open(t, cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = b.Close(ctx) // the server may have ended with the test
	})
	return b
}

func declare(t testing.TB, b *natsbroker.Broker, levels ...int) string {
	t.Helper()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: "q", Levels: levels}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return "q"
}

func subscribe(t testing.TB, b *natsbroker.Broker, o broker.SubscribeOptions) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), "q", o)
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

func receive(t testing.TB, s broker.Subscription) broker.Delivery {
	t.Helper()
	d, err := s.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return d
}

// nothing expects that no message arrives within d.
func nothing(t testing.TB, s broker.Subscription, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if got, err := s.Receive(ctx); err == nil {
		n, _ := got.Deliveries()
		t.Fatalf("received %s/%d, delivery %d", got.Message().ID, got.Message().Generation, n)
	}
}

func publish(t testing.TB, b *natsbroker.Broker, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := b.Publish(testwait.Long(t), "q", message(id)); err != nil {
			t.Fatalf("Publish(%s): %v", id, err)
		}
	}
}

func message(id string) *broker.Message {
	return &broker.Message{ID: id, ContentType: "text/plain", Body: []byte("body of " + id), Priority: 100}
}

func ack(t testing.TB, d broker.Delivery) {
	t.Helper()
	if err := d.Ack(testwait.Long(t)); err != nil {
		t.Fatalf("Ack: %v", err)
	}
}

// bare returns a separate client, as an administrator or a foreign program would use it.
func bare(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	return js
}

// logBook stores the log.
type logBook struct {
	mu  sync.Mutex
	txt bytes.Buffer
}

func (l *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.txt.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.txt.String()
}

func ids(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return s
}

// tally counts the deliveries of each message.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func newTally() *tally { return &tally{seen: make(map[string]int)} }

func (c *tally) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[id]++
}

func (c *tally) different() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// repeats returns the number of deliveries that were not the first of their message.
func (c *tally) repeats() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.seen {
		n += k - 1
	}
	return n
}

// consume acknowledges every message until ctx ends.
func consume(ctx context.Context, s broker.Subscription, seen *tally) {
	for {
		d, err := s.Receive(ctx)
		if err != nil {
			return
		}
		seen.add(d.Message().ID)
		_ = d.Ack(ctx) // a failed Ack shows as a repeat
	}
}
