package redisbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestManyWait shows that waiting consumers of many queues poll and renew their leases with few
// calls.
func TestManyWait(t *testing.T) {
	t.Parallel()
	const queues = 60
	srv := testserver.OwnRedis(t, testserver.RedisConfig{}) // its calls are counted
	b := connect(t, redisbroker.Config{Redis: options(srv), Namespace: "many", Poll: 20 * time.Millisecond, Lease: 2 * time.Second})
	last := subscribe(t, b, "q0", 10)
	for i := range queues {
		last = subscribe(t, b, declared(t, b, fmt.Sprint("q", i+1)), 10)
	}
	waits(t, srv, "many", fmt.Sprint("q", queues), 1)
	commands(t, srv) // resets the counters
	var calls, looks, renewals int
	testwait.Until(t, "that leases were renewed", func() bool {
		now := commands(t, srv)
		calls, looks, renewals = calls+now["evalsha"], looks+now["zscore"], renewals+now["zadd"]
		return renewals > 2*queues
	})
	if looks < 5*calls { // including the first claims of all
		t.Errorf("%d calls looked at a queue %d times, each looks at %d", calls, looks, queues)
	}
	// A task that another program pushes is found.
	do(t, srv, "RPUSH", fmt.Sprintf("swj:{many.q%d}:r0", queues), `{"task":"a","id":"pushed"}`)
	ack(t, receive(t, last))
	// No lease has ended: no owner has registered again.
	if n := do(t, srv, "HLEN", "swj:{many.q1}:c"); n != int64(1) {
		t.Errorf("%v owners and claims are on record, want one", n)
	}
}
