package amqpbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestAckSyncWithoutAnswer shows that after the acknowledgement was sent AckSync does not return
// ErrLeaseLost, because the message may be gone.
func TestAckSyncWithoutAnswer(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{proxy.URL(srv.URL())}}})
	q := declared(t, b)
	publish(t, b, q, message("sent"))
	publish(t, b, q, message("not sent"))
	s := subscribe(t, b, q, 2)
	sent, unsent := receive(t, s), receive(t, s)
	proxy.BlackHole(false, true)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := broker.AckSync(ctx, sent); !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("AckSync without an answer until ctx ended: %v, want ErrIndeterminate", err)
	}
	waits := make(chan error, 1)
	go func() { waits <- broker.AckSync(testwait.Long(t), sent) }()
	proxy.Heal() // closes the connection
	awaitLost(t, sent, "its connection was closed")
	for range 2 {
		if err := broker.AckSync(testwait.Long(t), sent); !errors.Is(err, broker.ErrIndeterminate) || errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("AckSync after the connection ended, the acknowledgement was sent: %v, want ErrIndeterminate", err)
		}
	}
	if err := <-waits; !errors.Is(err, broker.ErrIndeterminate) || errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("AckSync while the connection ended: %v, want ErrIndeterminate", err)
	}
	if err := broker.AckSync(testwait.Long(t), unsent); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("AckSync after the connection ended, nothing was sent: %v, want ErrLeaseLost", err)
	}
}
