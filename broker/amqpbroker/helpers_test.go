package amqpbroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// connect opens a Broker and closes it at the end of the test. Without URLs in cfg it uses the
// shared server.
func connect(t testing.TB, cfg amqpbroker.Config) *amqpbroker.Broker {
	t.Helper()
	if cfg.Connect.URLs == nil {
		cfg.Connect.URLs = []string{testserver.RequireRabbit(t).URL()}
	}
	b, err := amqpbroker.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// declared creates a new queue and returns its name.
func declared(t testing.TB, b *amqpbroker.Broker) string {
	t.Helper()
	q := testserver.Namespace()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return q
}

func subscribe(t testing.TB, b *amqpbroker.Broker, queue string, prefetch int) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), queue, broker.SubscribeOptions{Prefetch: prefetch})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

func receive(t testing.TB, s broker.Subscription) broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	d, err := s.Receive(ctx)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return d
}

func publish(t testing.TB, b *amqpbroker.Broker, queue string, m *broker.Message) {
	t.Helper()
	if err := b.Publish(testwait.Long(t), queue, m); err != nil {
		t.Fatalf("Publish: %v", err)
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

// logBook stores the log.
type logBook struct {
	mu  sync.Mutex
	txt strings.Builder
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

func ids(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("task-%05d", i)
	}
	return s
}
