package open_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
)

// refused checks that s.Ping fails with one line that contains want, and without secrets.
func refused(t *testing.T, s *open.Swarm, class error, want ...string) {
	t.Helper()
	err := s.Ping(t.Context())
	if !errors.Is(err, class) {
		t.Fatalf("Ping: %v, want %v", err, class)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Ping: %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Ping: %q, want one line without the password", err)
	}
}

// TestPingNobody shows that the error for a server that does not answer is one sentence with the
// remedy.
func TestPingNobody(t *testing.T) {
	addr, other := testserver.UnusedAddr(t), testserver.UnusedAddr(t)
	for name, c := range map[string]struct {
		url  string
		o    open.Options
		want []string
	}{
		"rabbit":    {"amqp://u:" + secret + "@" + addr, open.Options{}, []string{"no RabbitMQ answers at " + addr + " (connection refused); start one (rabbitmq-server), or use mem://"}},
		"nats":      {"nats://u:" + secret + "@" + addr, open.Options{}, []string{"no NATS server answers at " + addr + " (connection refused); start one (nats-server -js), or use nats-embedded"}},
		"redis":     {"redis://:" + secret + "@" + addr + "/1", open.Options{}, []string{"no Redis answers at " + addr + " (connection refused); start one (redis-server), or use mem://"}},
		"hworker":   {"hworker+redis://:" + secret + "@" + addr, open.Options{}, []string{"no Redis answers at " + addr}},
		"sentinel":  {"redis-sentinel://:" + secret + "@" + addr + "/m", open.Options{}, []string{"no Redis Sentinel answers at " + addr}},
		"two nodes": {"amqp://u:" + secret + "@" + addr + "," + other, open.Options{}, []string{addr + " or " + other}},
		"results":   {"mem://", open.Options{Results: "amqp://u:" + secret + "@" + addr}, []string{"no RabbitMQ answers at " + addr}},
		"events":    {"mem://", open.Options{Events: "amqp://u:" + secret + "@" + addr}, []string{"no RabbitMQ answers at " + addr}},
		"no host":   {"amqp://u:" + secret + "@host.invalid", open.Options{}, []string{"no RabbitMQ answers at host.invalid:5672 (unknown host"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, opened(t, c.url, c.o), broker.ErrUnavailable, c.want...)
		})
	}
	if err := opened(t, "mem://", open.Options{}).Ping(t.Context()); err != nil {
		t.Errorf("Ping in memory: %v", err)
	}
}

// TestPingEnds shows that a Ping ends with its ctx.
func TestPingEnds(t *testing.T) {
	proxy := testserver.NewProxy(t, testserver.UnusedAddr(t))
	proxy.BlackHole(true, true)
	s := opened(t, "amqp://u:"+secret+"@"+proxy.Addr(), open.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Ping(ctx); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("Ping of a server that says nothing: %v", err)
	}
}

// TestPingByHand shows that Ping works for a Swarm that was not made by Open.
func TestPingByHand(t *testing.T) {
	b, err := open.Broker(t.Context(), "mem://", open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &open.Swarm{Broker: b}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(t, s, broker.ErrClosed, "the broker cannot be used")
}

func TestPingRabbit(t *testing.T) {
	r := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	for _, o := range []open.Options{{Namespace: ns}, {Namespace: ns, Results: "mem://"}, {Namespace: ns, Events: r.URL() + "?namespace=" + ns}} {
		if err := opened(t, r.URL(), o).Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v", err)
		}
	}
	u, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("nobody", secret)
	refused(t, opened(t, u.String(), open.Options{}), broker.ErrAccess, "RabbitMQ at "+r.Addr()+`: login of user "nobody" refused`, "correct user and password")
}
