package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// server is the part of a broker's server that the tests control.
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
	require func(tb testing.TB) server // the server that the tests share
	own     func(tb testing.TB) server
	// lease is the time for which a silent consumer keeps its tasks. 0: the broker watches the
	// consumer's connection instead.
	lease time.Duration
	// alert holds URL parameters that detect a dead connection within seconds.
	alert string
}

// shortLease is a lease that keeps the waits of a test short.
const shortLease = 3 * time.Second

// pooled is a PostgreSQL server whose clients connect through PgBouncer.
type pooled struct {
	*testserver.Postgres
	pooler *testserver.PgBouncer
}

func (p pooled) Addr() string { return p.pooler.Addr() }
func (p pooled) URL() string  { return p.pooler.Polled(p.Postgres.URL()) }

// engines returns all kinds of brokers. Thorough runs have PostgreSQL through PgBouncer too.
func engines() []*engine {
	all := []*engine{
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
		{
			name:    "postgres",
			require: func(tb testing.TB) server { return testserver.RequirePostgres(tb) },
			own:     func(tb testing.TB) server { return testserver.OwnPostgres(tb, testserver.PostgresConfig{}) },
			lease:   shortLease,
		},
	}
	if testserver.IsThorough() {
		all = append(all, &engine{
			name: "pgbouncer",
			require: func(tb testing.TB) server {
				return pooled{testserver.RequirePostgres(tb), testserver.RequirePgBouncer(tb)}
			},
			own: func(tb testing.TB) server {
				p := testserver.OwnPostgres(tb, testserver.PostgresConfig{})
				return pooled{p, testserver.OwnPgBouncer(tb, p)}
			},
			lease: shortLease,
		})
	}
	return all
}

// quick returns settings of a consumer whose death must be detected soon.
func (e *engine) quick(s settings) settings {
	if e.lease > 0 {
		s["LEASE_MS"] = e.lease.Milliseconds()
	}
	return s
}

// each runs a test with each engine in parallel. The tests wait most of the time, and each engine
// has its own server.
func each(t *testing.T, test func(t *testing.T, e *engine)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// inTurn runs a test with one engine after another. It is for tests that count or measure time.
func inTurn(t *testing.T, test func(t *testing.T, e *engine)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { test(t, e) })
	}
}

// often returns how often a test repeats a fault: few times, or many times with SWARMIJI_THOROUGH.
// A soak run repeats it more often.
func often(few, many int) int {
	if testserver.IsThorough() {
		return many
	}
	return few
}

// eachLong is like each, but a short run uses only the first engine.
func eachLong(t *testing.T, test func(t *testing.T, e *engine)) {
	each(t, func(t *testing.T, e *engine) {
		if testing.Short() && e.name != engines()[0].name {
			t.Skip("a short run tries this fault on one engine")
		}
		test(t, e)
	})
}
