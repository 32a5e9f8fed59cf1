package faulttest

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// soakPlace is a broker that a soak run starts for itself: one or more servers, or a file.
type soakPlace struct {
	name     string
	quick    bool          // also "make test" uses it, beside "make soak" and "make thorough"
	thorough bool          // only "make thorough" and manual runs have the time for it
	lease    time.Duration // as in engine
	params   string        // parameters of the URL
	start    func(r *soakRun)
	more     func(r *soakRun) []fault
}

func soakPlaces() []*soakPlace {
	return []*soakPlace{
		{
			name: "rabbit", quick: true, params: "?heartbeat=1", more: rabbitFaults,
			start: func(r *soakRun) { r.serve(testserver.OwnRabbit(r.t, testserver.RabbitConfig{})) },
		},
		{
			name: "redis", quick: true, lease: shortLease, more: redisFaults,
			start: func(r *soakRun) { r.serve(testserver.OwnRedis(r.t, testserver.RedisConfig{})) },
		},
		{
			name: "nats", lease: shortLease, more: noFaults,
			start: func(r *soakRun) { r.serve(testserver.OwnNATS(r.t, testserver.NATSConfig{})) },
		},
		{
			name: "postgres", lease: shortLease, more: noFaults,
			start: func(r *soakRun) { r.serve(testserver.OwnPostgres(r.t, testserver.PostgresConfig{})) },
		},
		{
			// its processes share a file, so there is neither a server nor a network
			name: "sqlite", thorough: true, lease: shortLease, more: noFaults,
			start: func(r *soakRun) { r.file = "sqlite://" + filepath.Join(r.t.TempDir(), "soak.db") },
		},
		{
			name: "rabbit3", thorough: true, params: "?heartbeat=1", more: rabbitFaults,
			start: func(r *soakRun) { serveAll(r, testserver.OwnRabbitCluster(r.t, testserver.RabbitConfig{}).Nodes) },
		},
		{
			name: "redis-replica", thorough: true, lease: shortLease, params: "?wait_replicas=1", more: replicaFaults,
			start: func(r *soakRun) {
				pair := testserver.OwnRedisReplica(r.t, testserver.RedisConfig{})
				r.serve(&failover{Redis: pair.Primary, replica: pair.Replica, relay: testserver.NewRelay(r.t, pair.Primary.Addr())})
			},
		},
		{
			name: "nats3", thorough: true, lease: shortLease, params: "?replicas=3", more: noFaults,
			start: func(r *soakRun) { serveAll(r, testserver.OwnNATSCluster(r.t, testserver.NATSConfig{}).Nodes) },
		},
	}
}

func noFaults(*soakRun) []fault { return nil }

// serve adds a server with a proxy in front of it.
func (r *soakRun) serve(s server) {
	r.nodes = append(r.nodes, s)
	r.net = append(r.net, testserver.NewProxy(r.t, s.Addr()))
}

func serveAll[S server](r *soakRun, nodes []S) {
	for _, n := range nodes {
		r.serve(n)
	}
}

// url returns the address of the broker through its proxies.
func (r *soakRun) url() string {
	urls := make([]string, len(r.net))
	for i, p := range r.net {
		urls[i] = p.URL(r.nodes[i].URL())
	}
	return r.file + strings.Join(urls, ",") + r.place.params
}

// direct returns the address of the broker without its proxies.
func (r *soakRun) direct() string {
	urls := make([]string, len(r.nodes))
	for i, n := range r.nodes {
		urls[i] = n.URL()
	}
	return r.file + strings.Join(urls, ",") + r.place.params
}
