package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// server is what the tests do to a broker.
type server interface {
	Addr() string
	URL() string
	Kill()
	Restart(ctx context.Context) error
	Pause()
	Resume()
	CloseAllConnections(ctx context.Context) error
}

// engine is a kind of broker.
type engine struct {
	name    string
	require func(tb testing.TB) server // the one that the tests share
	own     func(tb testing.TB) server
	// lease is how long the tests let a silent consumer keep its tasks; 0: the broker sees its connection instead.
	lease time.Duration
	// alert are the parameters of a URL with which a dead connection is noticed within seconds.
	alert string
}

// shortLease is a lease with which a test need not wait for long.
const shortLease = 3 * time.Second

func engines() []*engine {
	return []*engine{
		{
			name:    "rabbit",
			require: func(tb testing.TB) server { return testserver.RequireRabbit(tb) },
			own:     func(tb testing.TB) server { return testserver.OwnRabbit(tb, testserver.RabbitConfig{}) },
			alert:   "?heartbeat=1",
		},
		{
			name:    "redis",
			require: func(tb testing.TB) server { return testserver.RequireRedis(tb) },
			own:     func(tb testing.TB) server { return testserver.OwnRedis(tb, testserver.RedisConfig{}) },
			lease:   shortLease,
		},
		{
			name:    "nats",
			require: func(tb testing.TB) server { return testserver.RequireNATS(tb) },
			own:     func(tb testing.TB) server { return testserver.OwnNATS(tb, testserver.NATSConfig{}) },
			lease:   shortLease,
		},
	}
}

// quick are settings of a consumer whose death must be noticed soon.
func (e *engine) quick(s settings) settings {
	if e.lease > 0 {
		s["LEASE_MS"] = e.lease.Milliseconds()
	}
	return s
}

// each runs a test over each engine, beside each other: most of the time is spent waiting, and each has a server of its
// own.
func each(t *testing.T, test func(t *testing.T, e *engine)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// inTurn runs a test that counts or times something over one engine after the other.
func inTurn(t *testing.T, test func(t *testing.T, e *engine)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { test(t, e) })
	}
}

// eachLong is each for tests of which a short run needs one engine only.
func eachLong(t *testing.T, test func(t *testing.T, e *engine)) {
	each(t, func(t *testing.T, e *engine) {
		if testing.Short() && e.name != engines()[0].name {
			t.Skip("a short run tries this fault on one engine")
		}
		test(t, e)
	})
}
