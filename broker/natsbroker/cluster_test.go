package natsbroker_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestConformanceCluster runs the cases that depend on replication on three servers.
func TestConformanceCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: one server only")
	}
	t.Parallel()
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	ns := testserver.Namespace()
	warm := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: c.URLs()}, Namespace: ns, Replicas: 3})
	declare(t, warm)
	n := 0
	brokertest.Run(t, func(ct testing.TB) *brokertest.Harness {
		area := strings.Split(ct.Name(), "/")[1]
		if !slices.Contains([]string{"order", "delay", "batch", "retry", "dead_letters", "find", "priority", "witness"}, area) {
			ct.Skip("tried with one server")
		}
		skipLong(ct)
		n++
		return &brokertest.Harness{
			Open: func(t testing.TB) broker.Broker {
				return open(t, natsbroker.Config{Connect: natsconnect.Config{URLs: c.URLs()}, Namespace: ns, Replicas: 3, MaxBody: testMaxBody})
			},
			Prefix: testserver.Namespace(), // streams with three replicas take long to create
			Quiet:  2 * testQuiet,
			Secret: c.Password(),
			Promises: brokertest.Promises{
				Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Delays: true, Batch: true, Retry: true,
				SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, DeadByID: true, Watch: true, Witness: true, Outlives: true, Forgets: true, MaxBody: testMaxBody,
			},
		}
	})
	if n == 0 {
		t.Error("no case was run")
	}
}

// skipLong leaves out the case of the suite that takes longest. TestConformance tries it. Neither
// the number of servers nor their version changes how letters are listed.
func skipLong(c testing.TB) {
	if strings.HasSuffix(c.Name(), "/3,000_letters") {
		testserver.Thorough(c)
	}
}

// TestLeaderIsKilled kills the leader of a stream with three replicas while messages are published
// and consumed.
func TestLeaderIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: one server only")
	}
	t.Parallel()
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	ns := testserver.Namespace()
	cfg := natsbroker.Config{Connect: natsconnect.Config{URLs: c.URLs()}, Namespace: ns, Replicas: 3}
	pub, con := connect(t, cfg), connect(t, cfg)
	declare(t, pub)
	s := subscribe(t, con, broker.SubscribeOptions{Prefetch: 32, Lease: 3 * time.Second})
	seen := newTally()
	ctx := testwait.Long(t)
	for range 2 {
		go consume(ctx, s, seen)
	}
	const publishers, each = 4, 300
	at := time.Now().Add(4 * time.Second)
	if err := pub.PublishAt(ctx, "q", message("delayed"), at); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	var pubs sync.WaitGroup
	for p := range publishers {
		pubs.Go(func() { publishAll(t, pub, ids(string(rune('a'+p)), each)) })
	}
	testwait.Until(t, "some messages", func() bool { return seen.different() > 100 })
	leader, err := c.Leader(ctx, "SWJ_"+ns)
	if err != nil {
		t.Fatal(err)
	}
	c.KillNode(leader)
	pubs.Wait()
	testwait.Until(t, "all messages", func() bool { return seen.different() == publishers*each+1 })
	if time.Now().Before(at) {
		t.Error("the delayed message came early")
	}
	t.Logf("%d repeats", seen.repeats())
	if err := c.RestartNode(ctx, leader); err != nil {
		t.Fatal(err)
	}
}
