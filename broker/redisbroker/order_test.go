package redisbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// inOrder expects that the next messages of a subscription have the ids.
func inOrder(t *testing.T, s broker.Subscription, ids ...string) {
	t.Helper()
	for i, id := range ids {
		d := receive(t, s)
		if d.Message().ID != id {
			t.Fatalf("message %d is %s, want %s", i, d.Message().ID, id)
		}
		ack(t, d)
	}
}

// TestOrderAfterLeaseEnd shows that messages of several claims keep their order when the lease of
// their owner ends.
func TestOrderAfterLeaseEnd(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: 50 * time.Millisecond})
	dead, l := overLine(t, redisbroker.Config{Namespace: ns, Lease: 500 * time.Millisecond}, srv)
	q := declared(t, b, "q")
	s := subscribe(t, dead, q, 4)
	ids := []string{"a", "b", "c", "d"}
	for _, id := range ids { // each one is a claim
		publish(t, b, q, message(id))
		receive(t, s)
	}
	l.set(true)
	defer l.set(false)
	testwait.Until(t, "that the lease has ended", func() bool {
		return do(t, srv, "ZCOUNT", "swj:{"+ns+"."+q+"}:o", fmt.Sprint(time.Now().UnixMicro()), "+inf") == int64(0)
	})
	inOrder(t, subscribe(t, b, q, 1), ids...)
}

// TestOrderAfterClose shows that many messages that Receive has not returned keep their order when
// the subscription is closed.
func TestOrderAfterClose(t *testing.T) {
	t.Parallel()
	b := connect(t, redisbroker.Config{})
	q := declared(t, b, "q")
	ms := messages("m", 700)
	publishAll(t, b, q, ms...)
	s := subscribe(t, b, q, 1000)
	ack(t, receive(t, s))
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	var ids []string
	for _, m := range ms[1:] {
		ids = append(ids, m.ID)
	}
	inOrder(t, subscribe(t, b, q, 1000), ids...)
}

// TestOrderOfLateMessagesAtClose shows that messages that arrive after Close go back behind
// earlier ones.
func TestOrderOfLateMessagesAtClose(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	con, l := overLine(t, redisbroker.Config{Namespace: ns, Poll: patient}, srv)
	q := declared(t, con, "q")
	s := subscribe(t, con, q, 10)
	waits(t, srv, ns, q, 1)
	publishAll(t, pub, q, message("x"), message("y"))
	ack(t, receive(t, s)) // y is here too
	here := l.delayMessages("body of b", redisbroker.ScriptHash("mute"))
	publish(t, pub, q, message("a"), message("b"))
	testwait.Closed(t, "the arrival of the messages", here)
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	inOrder(t, subscribe(t, pub, q, 1), "y", "a", "b")
}
