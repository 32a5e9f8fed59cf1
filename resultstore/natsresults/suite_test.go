package natsresults_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/task"
)

// largest is MaxResult of the suite's stores, in bytes.
const largest = 2 << 20

var promises = resultstoretest.Promises{Notify: true, Gather: true, Claim: true, Swap: true, Batches: true, Checkpoints: true, Durable: true, TTL: 200 * time.Millisecond, MaxResult: largest}

func TestStore(t *testing.T) {
	resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
		h := harness(t)
		h.Report = "../../docs/capabilities/results-nats.json"
		return h
	})
}

func TestStoreInProcess(t *testing.T) {
	testserver.Thorough(t) // TestStore reads directly, too, and TestStoreReadFromLeader is in process
	resultstoretest.Run(t, harnessInProcess)
}

// TestStoreReadFromLeader runs the suite on a stream without direct reads, like one with replicas.
// Records are then read from the leader.
func TestStoreReadFromLeader(t *testing.T) {
	resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
		srv := server(t, embedded.Options{})
		rawStream(t, srv, jetstream.StreamConfig{
			Name: "SWJRESULTS_default", Subjects: []string{"swj.default.R.*"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true,
		})
		return inProcess(srv)
	})
}

func BenchmarkStore(b *testing.B) { resultstoretest.Bench(b, harness) }

func BenchmarkStoreInProcess(b *testing.B) { resultstoretest.Bench(b, harnessInProcess) }

func harness(t testing.TB) *resultstoretest.Harness {
	srv := testserver.RequireNATS(t)
	line := testserver.NewRelay(t, srv.Addr())
	ns := testserver.Namespace()
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			return newStore(t, natsresults.Config{Connect: natsconnect.Config{URLs: []string{line.URL(srv.URL())}}, Namespace: ns})
		},
		Sever: func(testing.TB, resultstore.ResultStore) { line.Sever() },
		Restart: func(t testing.TB) {
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(testing.TB) func() {
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Prefix:   ns,
		Secret:   srv.Password(),
		Promises: promises,
	}
}

func harnessInProcess(t testing.TB) *resultstoretest.Harness {
	return inProcess(server(t, embedded.Options{}))
}

func inProcess(srv *embedded.Server) *resultstoretest.Harness {
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			return newStore(t, natsresults.Config{Connect: natsconnect.Config{InProcess: srv}})
		},
		Promises: promises,
	}
}

// newStore makes a store for the suite, which closes it.
func newStore(t testing.TB, c natsresults.Config) *natsresults.Store {
	t.Helper()
	c.MaxResult, c.Logger, c.Connect.Backoff = largest, quiet(), task.Backoff{Max: 500 * time.Millisecond}
	s, err := natsresults.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
