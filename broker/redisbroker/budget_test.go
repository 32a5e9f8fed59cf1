package redisbroker_test

import (
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestMoreThanOneClaim shows that a consumer receives at once all messages that it has room for,
// although one claim has a limit of bytes.
func TestMoreThanOneClaim(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprint("fair=", fair), func(t *testing.T) {
			t.Parallel()
			b := connect(t, redisbroker.Config{Poll: patient})
			if err := b.Declare(testwait.Long(t), broker.Queue{Name: "q", Fair: fair}); err != nil {
				t.Fatalf("Declare: %v", err)
			}
			ms := messages("m", 200)
			for _, m := range ms {
				m.Body = make([]byte, 100_000)
			}
			publishAll(t, b, "q", ms...)
			receiveAll(t, b, "q", len(ms))
		})
	}
}

// TestManyForeignTasksOnAFairQueue shows that a consumer receives all tasks that another program
// has pushed without a poll. One claim moves only some of them into the turns.
func TestManyForeignTasksOnAFairQueue(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q")
	args := []any{"RPUSH", "swj:{" + ns + "." + q + "}:r0"}
	for range 3000 {
		args = append(args, `{"task":"x"}`)
	}
	do(t, srv, args...)
	receiveAll(t, b, q, 3000)
}

// receiveAll receives n messages of a queue with one subscription and then acknowledges them.
func receiveAll(t *testing.T, b *redisbroker.Broker, queue string, n int) {
	t.Helper()
	s := subscribe(t, b, queue, n)
	var ds []broker.Delivery
	for range n {
		d, err := s.Receive(testwait.Long(t))
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(ds), n, err)
		}
		ds = append(ds, d)
	}
	ack(t, ds...)
}
