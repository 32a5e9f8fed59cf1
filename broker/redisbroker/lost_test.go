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

// patient is a poll interval for which no test waits.
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

// TestLostClaimAtClose shows that Close returns the messages of a claim without an answer, and that
// the delivery does not count.
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

// TestLateMessagesAtClose shows that Close returns messages that arrive while it returns others.
func TestLateMessagesAtClose(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	con, l := overLine(t, redisbroker.Config{Namespace: ns, Poll: patient}, srv)
	q := declared(t, con, "q")
	s := subscribe(t, con, q, 10)
	waits(t, srv, ns, q, 1)
	here := l.delayMessages("body of b", redisbroker.ScriptHash("release"))
	publish(t, pub, q, message("a"), message("b"))
	testwait.Closed(t, "the arrival of the messages", here)
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if st := stats(t, pub, q); st.Ready != 2 || st.Held != 0 {
		t.Errorf("after Close: %+v", st)
	}
}

func TestLostHandOver(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	// Only the loss of the channel, and the claim after it is restored, can deliver the message.
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

// TestHandOverAfterLostClaim shows that the server may deliver a message, under the next number,
// while a claim without an answer waits to be repeated.
func TestHandOverAfterLostClaim(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	pub := connect(t, redisbroker.Config{Namespace: ns})
	// leaves time for the publish almost always
	slow := &redis.UniversalOptions{MinRetryBackoff: 4 * time.Second, MaxRetryBackoff: 4 * time.Second}
	con, l := overLine(t, redisbroker.Config{Namespace: ns, Poll: patient, Redis: slow}, srv)
	q := declared(t, con, "q")
	s := subscribe(t, con, q, 3)
	waits(t, srv, ns, q, 1)
	publish(t, pub, q, message("a"), message("b"))
	held := []broker.Delivery{receive(t, s), receive(t, s)}
	// one more is delivered directly, the other must be claimed
	publish(t, pub, q, messages("c", 2)...)
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

// TestHandOversGoOn shows that single messages are delivered directly for ever. The consumer claims
// before the places that the server knows are used up. Otherwise no further message would arrive.
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
			// so that the numbers of free places vary
			if held = append(held, d); len(held) > prefetch/2 || i == 59 {
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

// waits waits until n owners are recorded as waiting for messages of a queue.
func waits(t testing.TB, srv *testserver.Redis, ns, q string, n int64) {
	t.Helper()
	testwait.Until(t, "that a consumer waits", func() bool { return do(t, srv, "ZCARD", "swj:{"+ns+"."+q+"}:h") == n })
}

// TestHandOver shows that a waiting consumer receives a published message without a claim, and that
// a consumer without room does not.
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

// TestHandOverToTheDead shows that a consumer whose connections are closed receives no message that
// another could receive.
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
	publish(t, b, q, message("a")) // the server knows the script now
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
	// otherwise the first answer is that the script is unknown
	for _, name := range []string{"ack", "release", "bury", "retry"} {
		source, err := redisbroker.Source(name)
		if err != nil {
			t.Fatal(err)
		}
		do(t, testserver.RequireRedis(t), "SCRIPT", "LOAD", source)
	}
	tests := []struct {
		script string
		do     func(d broker.Delivery) error
		again  error // error of the same settlement called again
		stays  bool
	}{
		{"ack", func(d broker.Delivery) error { return broker.AckSync(testwait.Long(t), d) }, broker.ErrSettled, false},
		{"release", func(d broker.Delivery) error { return d.Release(testwait.Long(t), 0) }, broker.ErrSettled, true},
		{"bury", func(d broker.Delivery) error { return d.DeadLetter(testwait.Long(t), broker.Dead{Reason: "why"}) }, broker.ErrSettled, false},
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
		// An acknowledgement is repeated. The other settlements return ErrIndeterminate.
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

// TestAckRepeated shows that an Ack reaches the server although its first answer was lost and the
// line was cut.
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

// TestCloseRepeats shows that Close returns held messages to the queue although an answer of the
// server is lost.
func TestCloseRepeats(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"release", "leave"} {
		srv := testserver.RequireRedis(t)
		cfg := redisbroker.Config{Namespace: testserver.Namespace()}
		other := connect(t, cfg)
		b, l := overLine(t, cfg, srv)
		q := declared(t, b, "q")
		publish(t, b, q, message("a"))
		receive(t, subscribe(t, b, q, 1))
		lost := l.loseAnswer(redisbroker.ScriptHash(script))
		if err := b.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close whose answer to %s was lost: %v", script, err)
		}
		testwait.Closed(t, "the loss of the answer to "+script, lost)
		d := receive(t, subscribe(t, other, q, 1))
		if n, exact := d.Deliveries(); n != 2 || !exact {
			t.Errorf("after a lost answer to %s it is delivery %d (exact: %v), want 2", script, n, exact)
		}
		ack(t, d)
	}
}

// TestManyDeadOwners shows that one claim returns the messages of all consumers whose leases have
// ended, however many they are.
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
	// This owner does not poll: only its claims return messages.
	alive := subscribe(t, connect(t, redisbroker.Config{Namespace: ns, Poll: patient}), q, 0)
	for range owners {
		ack(t, receive(t, alive))
	}
	nothing(t, alive)
}
