package natsbroker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestConformanceEmbedded runs the suite on a server in this process, without a network.
func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Open(testwait.Long(t), t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(testwait.Long(t)); err != nil {
			t.Errorf("closing the server: %v", err)
		}
	})
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		area := strings.Split(c.Name(), "/")[1]
		if !slices.Contains([]string{"deliver", "order", "batch", "settle"}, area) {
			c.Skip("does not depend on the way to the server")
		}
		ns := testserver.Namespace()
		return &brokertest.Harness{
			Quiet: testQuiet,
			Open: func(t testing.TB) broker.Broker {
				return open(t, natsbroker.Config{Connect: natsconnect.Config{InProcess: srv}, Namespace: ns, MaxBody: 500_000})
			},
			Promises: brokertest.Promises{
				Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Delays: true, Batch: true, Retry: true,
				SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, DeadByID: true, Watch: true, Witness: true, Outlives: true, Forgets: true, MaxBody: 500_000,
			},
		}
	})
}
