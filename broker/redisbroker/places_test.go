package redisbroker_test

import (
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// Without a poll each free place must be announced to a consumer that uses it.

// place is a fair queue with bounds whose consumers do not poll.
type place struct {
	t      *testing.T
	srv    *testserver.Redis
	b      *redisbroker.Broker
	queue  string
	prefix string // of the queue's keys
}

// placesOf returns a queue with the messages ms.
func placesOf(t *testing.T, ms ...*broker.Message) *place {
	t.Helper()
	ns := testserver.Namespace()
	p := &place{t: t, srv: testserver.RequireRedis(t), b: connect(t, redisbroker.Config{Namespace: ns, Poll: patient})}
	p.queue = declaredFair(t, p.b, "q")
	p.prefix = "swj:{" + ns + "." + p.queue + "}:"
	publishAll(t, p.b, p.queue, ms...)
	return p
}

// held waits until n messages are held.
func (p *place) held(n int) {
	p.t.Helper()
	testwait.Until(p.t, fmt.Sprint("that ", n, " messages are held"), func() bool { return stats(p.t, p.b, p.queue).Held == n })
}

// waiting waits until n consumers wait, and returns their owners, the longest wait first.
func (p *place) waiting(n int) (owners []any) {
	p.t.Helper()
	testwait.Until(p.t, fmt.Sprint("that ", n, " consumers wait"), func() bool {
		owners, _ = do(p.t, p.srv, "ZRANGE", p.prefix+"h", 0, -1).([]any)
		return len(owners) == n
	})
	return owners
}

// closed subscribes, receives n messages and closes the subscription, so that only the end of these
// messages makes places free.
func (p *place) closed(n int, bounds broker.Bounds) (ds []broker.Delivery) {
	p.t.Helper()
	s := subscribeBounds(p.t, p.b, p.queue, n, bounds)
	for range n {
		ds = append(ds, receive(p.t, s))
	}
	p.close(s)
	return ds
}

// ack acknowledges a delivery and waits for the server.
func (p *place) ack(d broker.Delivery) {
	p.t.Helper()
	if err := broker.AckSync(testwait.Long(p.t), d); err != nil {
		p.t.Fatalf("AckSync: %v", err)
	}
}

// close closes a subscription.
func (p *place) close(s broker.Subscription) {
	p.t.Helper()
	if err := s.Close(testwait.Long(p.t)); err != nil {
		p.t.Fatalf("Close: %v", err)
	}
}

// TestPlaceBesideUnreadMessages shows that a notified consumer uses its last free place, also
// while most places of its prefetch have unread messages.
func TestPlaceBesideUnreadMessages(t *testing.T) {
	t.Parallel()
	p := placesOf(t, of("a", 0, 6)...)
	bounds := broker.Bounds{All: broker.Bound{Max: 3}}
	ds := p.closed(1, bounds)
	subscribeBounds(t, p.b, p.queue, 3, bounds)
	p.held(3)
	p.waiting(1)
	p.ack(ds[0])
	p.held(3)
	p.waiting(0) // all places of the prefetch have messages
}

// TestPlacesOneAfterTheOther shows that a consumer is notified of a place of a key after another
// consumer has taken the last one.
func TestPlacesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := placesOf(t, of("a", 0, 6)...)
	bounds := broker.Bounds{Key: broker.Bound{Max: 2}}
	ds := p.closed(2, bounds)
	for range 2 {
		subscribeBounds(t, p.b, p.queue, 1, bounds)
	}
	p.waiting(2)
	for left, d := range ds {
		p.ack(d)
		p.waiting(1 - left)
		p.held(2)
	}
}

// TestPlaceOfClosedConsumer shows that another consumer is notified of a place if the notified one
// has closed.
func TestPlaceOfClosedConsumer(t *testing.T) {
	t.Parallel()
	p := placesOf(t, of("a", 0, 6)...)
	bounds := broker.Bounds{All: broker.Bound{Max: 1}}
	ds := p.closed(1, bounds)
	notified := subscribeBounds(t, p.b, p.queue, 1, bounds)
	first := p.waiting(1)[0]
	subscribeBounds(t, p.b, p.queue, 1, bounds)
	other := p.waiting(2)[1]
	if other == first {
		t.Fatal("the second consumer waits before the first one")
	}
	// as a notification that arrives after the consumer has closed
	do(t, p.srv, "DEL", p.prefix+"h")
	p.ack(ds[0])
	do(t, p.srv, "ZADD", p.prefix+"h", 1, other)
	p.held(0)
	p.close(notified)
	p.held(1)
}
