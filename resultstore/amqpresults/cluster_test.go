package amqpresults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
)

// When a node of a cluster is killed, replies in quorum queues, the default with several URLs,
// continue on the other nodes. Consumers keep the replies for a classic queue on that node until it
// returns; they do not fail as undeliverable.
func TestLostNode(t *testing.T) {
	testserver.Thorough(t)
	t.Parallel() // runs beside the other test that has its own server
	c := testserver.OwnRabbitCluster(t, testserver.RabbitConfig{})
	ns := testserver.Namespace()
	consumer := open(t, c.URLs()[1], ns)
	classic := notify(t, open(t, c.URLs()[0], ns), "classic")
	quorum := notify(t, open(t, c.URLs()[0], ns, func(cfg *amqpresults.Config) { cfg.Connect.URLs = c.URLs() }), "quorum")
	save(t, consumer, done("classic", 1))
	receive(t, classic, done("classic", 1))
	save(t, consumer, done("quorum", 1))
	receive(t, quorum, done("quorum", 1))

	c.KillNode(0)
	for i := 2; i < 12; i++ {
		saveThrough(t, consumer, done("quorum", i))
		receiveAgain(t, quorum, done("quorum", i))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := consumer.Save(ctx, done("classic", i))
		cancel()
		if !errors.Is(err, resultstore.ErrUnavailable) || errors.Is(err, resultstore.ErrUnreachable) {
			t.Errorf("Save into a queue whose node is down: %v, want ErrUnavailable and not that the submitter is gone", err)
		}
	}
	if err := c.RestartNode(testwait.Long(t), 0); err != nil {
		t.Fatal(err)
	}
	saveThrough(t, consumer, done("classic", 99))
	receiveAgain(t, classic, done("classic", 99))
}

// receiveAgain receives want after a fault. It skips records that are delivered again because their
// acknowledgement was lost.
func receiveAgain(t testing.TB, n resultstore.Notifications, want resultstore.Record) {
	t.Helper()
	for {
		got, err := n.Receive(testwait.Long(t))
		if err != nil {
			t.Fatalf("Receive: %v", err)
		}
		if got.ID == want.ID {
			return
		}
	}
}

// saveThrough saves like a consumer does: it repeats Save while the store is unavailable.
func saveThrough(t testing.TB, s *amqpresults.Store, r resultstore.Record) {
	t.Helper()
	ctx := testwait.Long(t)
	for {
		err := s.Save(ctx, r)
		if err == nil {
			return
		}
		if !errors.Is(err, resultstore.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("Save: %v", err)
		}
	}
}
