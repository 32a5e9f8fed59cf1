package redisbroker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// patient is a poll so seldom that no test waits for it.
const patient = time.Hour

func TestLostClaim(t *testing.T) {
	t.Parallel()
	b, l := overLine(t, redisbroker.Config{}, testserver.RequireRedis(t))
	q := declared(t, b, "q")
	ms := messages("m", 5)
	publish(t, b, q, ms...)
	lost := l.loseAnswer(redisbroker.ScriptHash("claim"))
	s := subscribe(t, b, q, 10)
	testwait.Closed(t, "the loss of the answer", lost)
	for _, m := range ms {
		d := receive(t, s)
		first(t, d, m.ID)
		ack(t, d)
	}
	nothing(t, s)
	testwait.Until(t, "that nothing is held", func() bool { return stats(t, b, q) == broker.Stats{} })
}

// TestLostClaimAtClose: what a claim without an answer has taken is given back by Close, uncounted.
func TestLostClaimAtClose(t *testing.T) {
	t.Parallel()
	b, l := overLine(t, redisbroker.Config{}, testserver.RequireRedis(t))
	q := declared(t, b, "q")
	ms := messages("m", 3)
	publish(t, b, q, ms...)
	lost := l.loseAnswer(redisbroker.ScriptHash("claim"))
	s := subscribe(t, b, q, 10)
	testwait.Closed(t, "the loss of the answer", lost)
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if st := stats(t, b, q); st.Ready != 3 || st.Held != 0 {
		t.Errorf("after Close: %+v", st)
	}
	s = subscribe(t, b, q, 10)
	for _, m := range ms {
		d := receive(t, s)
		first(t, d, m.ID)
		ack(t, d)
	}
}

func TestLostHandOver(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	// Only the loss of the channel, and the look that follows when it is back, can bring the message.
	con, l := overLine(t, redisbroker.Config{Namespace: ns, Poll: patient}, srv)
	q := declared(t, con, "q")
	s := subscribe(t, con, q, 10)
	waits(t, srv, ns, q, 1)
	lost := l.loseMessage("body of a")
	publish(t, pub, q, message("a"))
	testwait.Closed(t, "the loss of the message", lost)
	d := receive(t, s)
	first(t, d, "a")
	ack(t, d)
	nothing(t, s)
}

// TestHandOverAfterLostClaim: while a claim without an answer waits to be repeated, the server hands something over, under the
// number after it.
func TestHandOverAfterLostClaim(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	slow := &redis.UniversalOptions{MinRetryBackoff: 4 * time.Second, MaxRetryBackoff: 4 * time.Second} // nearly always there is time for the publish
	con, l := overLine(t, redisbroker.Config{Namespace: ns, Poll: patient, Redis: slow}, srv)
	q := declared(t, con, "q")
	s := subscribe(t, con, q, 3)
	waits(t, srv, ns, q, 1)
	publish(t, pub, q, message("a"), message("b"))
	held := []broker.Delivery{receive(t, s), receive(t, s)}
	publish(t, pub, q, messages("c", 2)...) // one more is handed over, the other is to be claimed
	held = append(held, receive(t, s))
	lost := l.loseAnswer(redisbroker.ScriptHash("claim"))
	ack(t, held...)
	testwait.Closed(t, "the loss of the answer", lost)
	publish(t, pub, q, message("d"))
	for _, id := range []string{"c-000001", "d"} {
		d := receive(t, s)
		first(t, d, id)
		ack(t, d)
	}
	nothing(t, s)
	testwait.Until(t, "that nothing is held", func() bool { return stats(t, pub, q) == broker.Stats{} })
}

// TestHandOversGoOn: what is published one by one is handed over for ever: the consumer claims before the places are used up
// that the server knows of, and nothing else would bring it a message.
func TestHandOversGoOn(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	con := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declared(t, con, "q")
	for _, prefetch := range []int{1, 2, 5, 16, 0} {
		s := subscribe(t, con, q, prefetch)
		var held []broker.Delivery
		for i, m := range messages(fmt.Sprint("m", prefetch), 60) {
			publish(t, pub, q, m)
			d := receive(t, s)
			first(t, d, m.ID)
			if held = append(held, d); len(held) > prefetch/2 || i == 59 { // so that free places come in all numbers
				ack(t, held...)
				held = nil
			}
		}
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	testwait.Until(t, "that nothing is held", func() bool { return stats(t, pub, q) == broker.Stats{} })
}

// waits waits until so many owners are noted as waiting for messages of a queue.
func waits(t testing.TB, srv *testserver.Redis, ns, q string, n int64) {
	t.Helper()
	testwait.Until(t, "that a consumer waits", func() bool { return do(t, srv, "ZCARD", "swj:{"+ns+"."+q+"}:h") == n })
}

// TestHandOver: a consumer that waits is given what is published, without a claim; one without room is not.
func TestHandOver(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	con := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declared(t, con, "q")
	s := subscribe(t, con, q, 2)
	var held []broker.Delivery
	for _, m := range messages("m", 2) {
		waits(t, srv, ns, q, 1)
		publish(t, pub, q, m)
		d := receive(t, s)
		first(t, d, m.ID)
		held = append(held, d)
	}
	waits(t, srv, ns, q, 0)
	publishAll(t, pub, q, messages("n", 5)...)
	nothing(t, s)
	ack(t, held...)
	for _, m := range messages("n", 5) {
		d := receive(t, s)
		first(t, d, m.ID)
		ack(t, d)
	}
}

// TestHandOverToTheDead: a consumer whose connections are gone gets nothing that another could have.
func TestHandOverToTheDead(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	dead, l := overLine(t, redisbroker.Config{Namespace: ns}, srv)
	q := declared(t, dead, "q")
	subscribe(t, dead, q, 10)
	waits(t, srv, ns, q, 1)
	l.set(true)
	testwait.Until(t, "that the server has noticed", func() bool {
		return !strings.Contains(fmt.Sprint(do(t, srv, "PUBSUB", "CHANNELS", "swj:{"+ns+"*")), q)
	})
	alive := subscribe(t, pub, q, 10)
	publish(t, pub, q, message("a"))
	d := receive(t, alive)
	first(t, d, "a")
	ack(t, d)
	l.set(false)
}

func TestLostPublish(t *testing.T) {
	t.Parallel()
	b, l := overLine(t, redisbroker.Config{}, testserver.RequireRedis(t))
	q := declared(t, b, "q")
	publish(t, b, q, message("a")) // the script is known now
	lost := l.loseAnswer(redisbroker.ScriptHash("enqueue"))
	if err := b.Publish(testwait.Long(t), q, message("b")); !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("Publish whose answer was lost: %v", err)
	}
	testwait.Closed(t, "the loss of the answer", lost)
	if st := stats(t, b, q); st.Ready != 2 {
		t.Errorf("%d messages are ready, want 2: it was executed once", st.Ready)
	}
	publish(t, b, q, message("b"))
	s := subscribe(t, b, q, 10)
	for _, id := range []string{"a", "b"} {
		d := receive(t, s)
		first(t, d, id)
		ack(t, d)
	}
	nothing(t, s)
}

func TestLostSettlement(t *testing.T) {
	t.Parallel()
	b, l := overLine(t, redisbroker.Config{}, testserver.RequireRedis(t))
	q, other := declared(t, b, "q"), declared(t, b, "other")
	s := subscribe(t, b, q, 1)
	next := message("next")
	for _, name := range []string{"ack", "release", "bury", "retry"} { // or the first answer is that it is not known
		source, err := redisbroker.Source(name)
		if err != nil {
			t.Fatal(err)
		}
		do(t, testserver.RequireRedis(t), "SCRIPT", "LOAD", source)
	}
	tests := []struct {
		script string
		do     func(d broker.Delivery) error
		again  error // of the same once more
		stays  bool
	}{
		{"ack", func(d broker.Delivery) error { return broker.AckSync(testwait.Long(t), d) }, broker.ErrSettled, false},
		{"release", func(d broker.Delivery) error { return d.Release(testwait.Long(t), 0) }, broker.ErrSettled, true},
		{"bury", func(d broker.Delivery) error { return d.Bury(testwait.Long(t), broker.Dead{Reason: "why"}) }, broker.ErrSettled, false},
		{"retry", func(d broker.Delivery) error {
			return b.Retry(testwait.Long(t), d, broker.Outgoing{Queue: other, Message: next})
		}, broker.ErrSettled, false},
	}
	for _, tt := range tests {
		publish(t, b, q, message(tt.script))
		d := receive(t, s)
		first(t, d, tt.script)
		lost := l.loseAnswer(redisbroker.ScriptHash(tt.script))
		err := tt.do(d)
		testwait.Closed(t, "the loss of the answer to "+tt.script, lost)
		// An acknowledgement is asked for again; the others say that they do not know.
		if tt.script == "ack" && err != nil || tt.script != "ack" && !errors.Is(err, broker.ErrIndeterminate) {
			t.Errorf("%s whose answer was lost: %v", tt.script, err)
		}
		if err := tt.do(d); !errors.Is(err, tt.again) {
			t.Errorf("%s once more: %v, want %v", tt.script, err, tt.again)
		}
		if tt.stays {
			d = receive(t, s)
			if d.Message().ID != tt.script {
				t.Errorf("received %s", d.Message().ID)
			}
			ack(t, d)
		}
		nothing(t, s)
	}
	if st := stats(t, b, q); st.Dead != 1 || st.Held != 0 || st.Ready != 0 {
		t.Errorf("at the end: %+v", st)
	}
	if st := stats(t, b, other); st.Ready != 1 {
		t.Errorf("successors: %+v, want one", st)
	}
}

// TestAckRepeated: an Ack that did not wait reaches the server although the first answer was lost and the line was cut.
func TestAckRepeated(t *testing.T) {
	t.Parallel()
	b, l := overLine(t, redisbroker.Config{}, testserver.RequireRedis(t))
	q := declared(t, b, "q")
	publish(t, b, q, message("a"), message("b"))
	s := subscribe(t, b, q, 2)
	d1, d2 := receive(t, s), receive(t, s)
	lost := l.loseAnswer(redisbroker.ScriptHash("ack"))
	ack(t, d1)
	testwait.Closed(t, "the loss of the answer", lost)
	l.set(true)
	ack(t, d2)
	l.set(false)
	testwait.Until(t, "that both are gone", func() bool { return stats(t, b, q) == broker.Stats{} })
	nothing(t, s)
}

// TestManyDeadOwners: one claim puts back what all consumers held whose leases have ended, however
// many they were.
func TestManyDeadOwners(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	dead, l := overLine(t, redisbroker.Config{Namespace: ns, Lease: 2 * time.Second}, srv)
	q := declared(t, pub, "q")
	const owners = 150
	for _, m := range messages("m", owners) {
		publish(t, pub, q, m)
		receive(t, subscribe(t, dead, q, 1))
	}
	l.set(true)
	defer l.set(false)
	testwait.Until(t, "that all leases have ended", func() bool {
		return do(t, srv, "ZCOUNT", "swj:{"+ns+"."+q+"}:o", fmt.Sprint(time.Now().UnixMicro()), "+inf") == int64(0)
	})
	// This owner does not look for messages itself: only claims bring them.
	alive := subscribe(t, connect(t, redisbroker.Config{Namespace: ns, Poll: patient}), q, 0)
	for range owners {
		ack(t, receive(t, alive))
	}
	nothing(t, alive)
}
