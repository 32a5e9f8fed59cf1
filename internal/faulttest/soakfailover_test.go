package faulttest

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// failover is a Redis server with a replica that replaces it when it is killed, as an operator
// would do.
type failover struct {
	*testserver.Redis // the primary
	replica           *testserver.Redis
	relay             *testserver.Relay // connects to the primary
	killed            bool
}

// Addr returns the relay's address, which stays the same.
func (f *failover) Addr() string { return f.relay.Addr() }

func (f *failover) Kill() {
	f.killed = true
	f.Redis.Kill()
}

// Restart promotes the replica if the primary was killed, and restarts the old primary as its
// replica. Otherwise it restarts the primary.
func (f *failover) Restart(ctx context.Context) error {
	if !f.killed {
		return f.Redis.Restart(ctx)
	}
	pair := testserver.RedisPair{Primary: f.Redis, Replica: f.replica}
	if err := pair.Promote(ctx); err != nil {
		return err
	}
	f.relay.Redirect(f.replica.Addr())
	if err := f.Redis.Restart(ctx); err != nil {
		return err
	}
	f.Redis, f.replica, f.killed = f.replica, f.Redis, false
	return pair.Demote(ctx)
}

// replicaFaults returns the faults of a replica whose primary runs.
func replicaFaults(r *soakRun) []fault {
	f := r.nodes[0].(*failover)
	return []fault{{name: "replica away", do: func() {
		pair := testserver.RedisPair{Primary: f.Redis, Replica: f.replica}
		r.must(pair.Cut(r.t.Context()))
		r.pass(5 * time.Second)
		back := testserver.RedisPair{Primary: f.replica, Replica: f.Redis}
		r.must(back.Demote(r.t.Context()))
	}}}
}
