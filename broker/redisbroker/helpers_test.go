package redisbroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// options returns the client's options for a server.
func options(srv *testserver.Redis) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: srv.User(), Password: srv.Password()}
}

// connect opens a Broker and closes it at the end of the test. Without settings in cfg it uses the
// shared server and a new namespace.
func connect(t testing.TB, cfg redisbroker.Config) *redisbroker.Broker {
	t.Helper()
	if cfg.Redis == nil {
		cfg.Redis = options(testserver.RequireRedis(t))
	}
	if cfg.Namespace == "" {
		cfg.Namespace = testserver.Namespace()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b, err := redisbroker.New(cfg)
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

// overLine opens a Broker that reaches a server through a line.
func overLine(t testing.TB, cfg redisbroker.Config, srv *testserver.Redis) (*redisbroker.Broker, *line) {
	t.Helper()
	l := newLine()
	o := options(srv)
	if cfg.Redis != nil {
		o.MinRetryBackoff, o.MaxRetryBackoff = cfg.Redis.MinRetryBackoff, cfg.Redis.MaxRetryBackoff
	}
	o.Dialer = l.dial
	cfg.Redis = o
	return connect(t, cfg), l
}

// declared creates a queue and returns its name.
func declared(t testing.TB, b *redisbroker.Broker, q string) string {
	t.Helper()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return q
}

func subscribe(t testing.TB, b *redisbroker.Broker, queue string, prefetch int) broker.Subscription {
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

// nothing expects that no message arrives for a moment.
func nothing(t testing.TB, s broker.Subscription) {
	t.Helper()
	if d, err := s.Receive(testwait.Brief(t)); err == nil {
		t.Fatalf("received %s/%d", d.Message().ID, d.Message().Generation)
	}
}

func publish(t testing.TB, b *redisbroker.Broker, queue string, ms ...*broker.Message) {
	t.Helper()
	for _, m := range ms {
		if err := b.Publish(testwait.Long(t), queue, m); err != nil {
			t.Fatalf("Publish(%s): %v", m.ID, err)
		}
	}
}

// publishAll publishes many messages in one batch.
func publishAll(t testing.TB, b *redisbroker.Broker, queue string, ms ...*broker.Message) {
	t.Helper()
	out := make([]broker.Outgoing, len(ms))
	for i, m := range ms {
		out[i] = broker.Outgoing{Queue: queue, Message: m}
	}
	if err := b.PublishBatch(testwait.Long(t), out); err != nil {
		t.Fatalf("PublishBatch: %v", err)
	}
}

func message(id string) *broker.Message {
	return &broker.Message{ID: id, ContentType: "text/plain", Body: []byte("body of " + id), Priority: 100}
}

func messages(prefix string, n int) []*broker.Message {
	ms := make([]*broker.Message, n)
	for i := range ms {
		ms[i] = message(fmt.Sprintf("%s-%06d", prefix, i))
	}
	return ms
}

func ack(t testing.TB, ds ...broker.Delivery) {
	t.Helper()
	for _, d := range ds {
		if err := d.Ack(testwait.Long(t)); err != nil {
			t.Fatalf("Ack(%s): %v", d.Message().ID, err)
		}
	}
}

// first expects the first delivery of the message id.
func first(t testing.TB, d broker.Delivery, id string) {
	t.Helper()
	if n, exact := d.Deliveries(); d.Message().ID != id || n != 1 || !exact {
		t.Errorf("received %s, hand-out %d (%v); want %s for the first time", d.Message().ID, n, exact, id)
	}
}

func stats(t testing.TB, b *redisbroker.Broker, queue string) broker.Stats {
	t.Helper()
	st, err := b.Stats(testwait.Long(t), queue)
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	return st
}

// do executes a command on a server.
func do(t testing.TB, srv *testserver.Redis, args ...any) any {
	t.Helper()
	v, err := srv.Do(testwait.Long(t), args...)
	if err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
	return v
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
