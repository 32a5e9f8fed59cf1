package health_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/health"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed is a consumer with fixed Stats.
type fixed consumer.Stats

func (f fixed) Stats() consumer.Stats { return consumer.Stats(f) }

func TestLive(t *testing.T) {
	stuck := func(n, workers int) health.Consumer {
		return fixed{Running: true, Queues: []consumer.QueueStats{{Name: "mail", Workers: 1}, {Name: "reports", Workers: workers, Stuck: n}}}
	}
	for _, c := range []struct {
		what  string
		cfg   health.Config
		stuck bool
	}{
		{"nothing to check", health.Config{}, false},
		{"a consumer that does not run", health.Config{Consumers: []health.Consumer{fixed{}}}, false},
		{"below the default", health.Config{Consumers: []health.Consumer{stuck(consumer.MaxStuck-1, 1)}}, false},
		{"at the default", health.Config{Consumers: []health.Consumer{stuck(consumer.MaxStuck, 1)}}, true},
		{"many workers", health.Config{Consumers: []health.Consumer{stuck(consumer.MaxStuck, consumer.MaxStuck)}}, false},
		{"the second consumer", health.Config{Consumers: []health.Consumer{stuck(0, 1), stuck(2, 1)}, MaxStuck: 2}, true},
		{"below the limit", health.Config{Consumers: []health.Consumer{stuck(1, 1)}, MaxStuck: 2}, false},
	} {
		err := c.cfg.Live()
		if got := errors.Is(err, health.ErrStuck); got != c.stuck || (err == nil) == c.stuck {
			t.Errorf("%s: %v", c.what, err)
		}
		if c.stuck && !strings.Contains(err.Error(), "reports") {
			t.Errorf("%s: the error does not name the queue: %v", c.what, err)
		}
	}
}

func TestReady(t *testing.T) {
	s := membroker.NewServer(membroker.Config{})
	b := s.Connect()
	c, err := consumer.New(consumer.Config{Broker: b, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := health.Config{Consumers: []health.Consumer{c}, Broker: b}
	ready := func() error { return cfg.Ready(t.Context()) }
	if err := ready(); !errors.Is(err, health.ErrNotConsuming) || errors.Is(err, health.ErrDisconnected) {
		t.Errorf("before Run: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(context.WithoutCancel(t.Context())) }()
	testwait.Until(t, "the consumer is ready", func() bool { return ready() == nil })

	s.Down()
	if err := ready(); !errors.Is(err, health.ErrDisconnected) || errors.Is(err, health.ErrNotConsuming) {
		t.Errorf("without a server: %v", err)
	}
	if err := cfg.Live(); err != nil {
		t.Errorf("without a server a restart would not help: %v", err)
	}
	s.Up()
	testwait.Until(t, "the consumer is ready again", func() bool { return ready() == nil })

	c.Stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := ready(); !errors.Is(err, health.ErrNotConsuming) {
		t.Errorf("after the stop: %v", err)
	}
	if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// stopWatch calls onEnd when a subscription has to stop.
type stopWatch struct {
	broker.Broker
	onEnd func()
}

func (s stopWatch) Unwrap() any { return s.Broker }

func (s stopWatch) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	sub, err := s.Broker.Subscribe(ctx, queue, o)
	return stopWatchSub{sub, s.onEnd}, err
}

type stopWatchSub struct {
	broker.Subscription
	onEnd func()
}

func (s stopWatchSub) Unwrap() any { return s.Subscription }

func (s stopWatchSub) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if ctx.Err() != nil {
		s.onEnd()
	}
	return d, err
}

// TestStopEndsReadinessFirst shows that a consumer that is told to stop says so before its fetching
// ends, and while its last handler runs.
func TestStopEndsReadinessFirst(t *testing.T) {
	var c *consumer.Consumer
	late := make(chan bool, 100)
	b := stopWatch{membroker.New(), func() { late <- c.Stats().Running }}
	c, err := consumer.New(consumer.Config{Broker: b, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := health.Config{Consumers: []health.Consumer{c}, Broker: b}
	started, finish := make(chan struct{}), make(chan struct{})
	err = c.Register("slow", task.HandlerFunc(func(context.Context, *task.Request) (any, error) {
		close(started)
		<-finish
		return nil, nil
	}), task.Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(context.WithoutCancel(t.Context())) }()
	testwait.Until(t, "the consumer is ready", func() bool { return cfg.Ready(t.Context()) == nil })
	m := &broker.Message{ID: "1", ContentType: "application/json", Body: []byte(`{"task":"slow","id":"1"}`), Priority: 100}
	if err := b.Publish(t.Context(), "default", m); err != nil {
		t.Fatal(err)
	}
	<-started
	c.Stop()
	if <-late {
		t.Error("the fetching ended while the consumer said that it runs")
	}
	if err := cfg.Ready(t.Context()); !errors.Is(err, health.ErrNotConsuming) {
		t.Errorf("while the last handler runs: %v", err)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestHandler(t *testing.T) {
	s := membroker.NewServer(membroker.Config{})
	b := s.Connect()
	h := health.Handler(health.Config{Broker: b, Consumers: []health.Consumer{fixed{NodeID: "node-1"}}})
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/live", 200, "ok\n"},
		{"HEAD", "/live", 200, ""},
		{"GET", "/ready", 503, "not consuming: consumer node-1"},
		{"HEAD", "/ready", 503, ""},
		{"POST", "/live", 405, "not allowed"},
		{"GET", "/", 404, ""},
		{"GET", "/live/x", 404, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(strings.ToLower(w.Body.String()), c.body) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, w.Code, w.Body, c.status, c.body)
		}
	}
	if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}
