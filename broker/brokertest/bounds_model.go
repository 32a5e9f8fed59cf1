package brokertest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// randomBounds is the case of random operations on a fair queue with bounds.
func randomBounds(w *world) {
	t, ok := w.TB.(*testing.T)
	if !ok {
		w.Fatal("the model test needs a *testing.T")
	}
	limit := w.h.ModelChecks
	if limit == 0 {
		limit = 20
	}
	ran, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		if ran++; ran > limit && !failed {
			return
		}
		defer func() { failed = failed || rt.Failed() }()
		w.boundHistory(rt, fmt.Sprintf("bounds-%d", ran))
	})
}

// boundConsumer is a process of the model with one subscription.
type boundConsumer struct {
	b    broker.Broker
	s    broker.Subscription
	held []broker.Delivery
}

// boundModel is the expected state of a fair queue whose consumers have bounds.
type boundModel struct {
	w         *world
	rt        *rapid.T
	b         broker.Broker // it publishes
	queue     string
	bounds    broker.Bounds
	consumers [2]*boundConsumer
	next      int
	waiting   map[string]*broker.Message // by name; a subscription may have fetched some
}

// boundPrefetch is the prefetch of each subscription of the model.
const boundPrefetch = 3

// boundHistory runs one random history, and receives the rest at its end.
func (w *world) boundHistory(rt *rapid.T, queue string) {
	m := &boundModel{w: w, rt: rt, b: w.Open(), waiting: map[string]*broker.Message{}}
	m.queue = w.fairQueue(m.b, queue)
	m.bounds = broker.Bounds{
		Key:  broker.Bound{Max: rapid.IntRange(1, 3).Draw(rt, "max of a key")},
		All:  broker.Bound{Max: rapid.IntRange(0, 4).Draw(rt, "max of the queue")},
		Keys: map[string]broker.Bound{"c": {Max: rapid.IntRange(0, 2).Draw(rt, "max of c")}},
	}
	for i := range m.consumers {
		m.open(i)
	}
	actions := map[string]func(){
		"publish": m.publish, "receive": m.receive, "receive more": m.receive, "ack": m.ack, "release": m.release,
		"retry": m.retry, "close": m.close, "raise": m.raise, "purge": m.purge,
	}
	if _, ok := capability.As[broker.Finder](m.b); ok {
		actions["delete"] = m.remove
	}
	steps := w.h.ModelSteps
	if steps == 0 {
		steps = 20
	}
	kinds := slices.Sorted(maps.Keys(actions))
	for range rapid.IntRange(1, 2*steps).Draw(rt, "steps") {
		actions[rapid.SampledFrom(kinds).Draw(rt, "step")]()
	}
	for m.receive(); len(m.waiting) > 0 || m.holds("") > 0; m.receive() {
		m.ackAll()
	}
	for _, c := range m.consumers {
		w.closeBroker(c.b)
	}
	if w.forgotten(m.b, m.queue, "a drain with bounds"); w.Failed() {
		rt.FailNow()
	}
	w.closeBroker(m.b)
}

// open gives consumer i a new Broker and subscription.
func (m *boundModel) open(i int) {
	b := m.w.Open()
	m.consumers[i] = &boundConsumer{b: b, s: m.w.subscribeBounds(b, m.queue, boundPrefetch, m.bounds)}
}

// call expects that a call of the broker succeeds.
func (m *boundModel) call(err error, what string) {
	if err = m.w.Clean(err); err != nil {
		m.rt.Fatalf("%s: %v", what, err)
	}
}

// holds returns the number of deliveries of a key that the consumers hold, or of all keys for "".
func (m *boundModel) holds(key string) (n int) {
	for _, c := range m.consumers {
		for _, d := range c.held {
			if key == "" || d.Message().Key == key {
				n++
			}
		}
	}
	return n
}

// allows reports whether the bounds allow one more message of a key.
func (m *boundModel) allows(key string) bool {
	most := m.bounds.Of(key).Max
	return (most == 0 || m.holds(key) < most) && (m.bounds.All.Max == 0 || m.holds("") < m.bounds.All.Max)
}

// publish publishes up to four messages of one key.
func (m *boundModel) publish() {
	key := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(m.rt, "key")
	ctx, cancel := m.w.Ctx()
	defer cancel()
	for range rapid.IntRange(1, 4).Draw(m.rt, "messages") {
		one := keyed(fmt.Sprintf("m-%d", m.next), key, 1)
		m.next++
		m.waiting[name(one)] = one
		m.call(m.b.Publish(ctx, m.queue, one), "Publish")
	}
}

// receive receives until nothing is due. While the bounds allow a message of a waiting key, and a
// subscription has room, one must come.
func (m *boundModel) receive() {
	for m.must() {
		m.w.Until("a message of a key with a free place", func() bool {
			for _, c := range m.consumers {
				if len(c.held) < boundPrefetch && m.take(c) {
					return true
				}
			}
			return false
		})
	}
	for _, c := range m.consumers {
		if len(c.held) < boundPrefetch {
			m.take(c)
		}
	}
}

// must reports whether a message must come.
func (m *boundModel) must() bool {
	if len(m.consumers[0].held)+len(m.consumers[1].held) == 2*boundPrefetch {
		return false
	}
	for _, one := range m.waiting {
		if m.allows(one.Key) {
			return true
		}
	}
	return false
}

// take receives a message that c can get at once, if there is one, and checks it.
func (m *boundModel) take(c *boundConsumer) bool {
	d := m.w.receiveHeld(c.s)
	if d == nil {
		return false
	}
	got := d.Message()
	if m.waiting[name(got)] == nil {
		m.rt.Fatalf("%s was delivered and does not wait", name(got))
	}
	if !m.allows(got.Key) {
		m.rt.Fatalf("%s was delivered while %d of its key %q and %d of the queue are held; the bounds are %+v", name(got), m.holds(got.Key), got.Key, m.holds(""), m.bounds)
	}
	delete(m.waiting, name(got))
	c.held = append(c.held, d)
	return true
}

// pick removes a delivery from a consumer that holds one and returns both, or nil.
func (m *boundModel) pick() (*boundConsumer, broker.Delivery) {
	if m.holds("") == 0 {
		return nil, nil
	}
	i := rapid.IntRange(0, m.holds("")-1).Draw(m.rt, "delivery")
	for _, c := range m.consumers {
		if i < len(c.held) {
			d := c.held[i]
			c.held = slices.Delete(slices.Clone(c.held), i, i+1)
			return c, d
		}
		i -= len(c.held)
	}
	return nil, nil
}

// ack acknowledges a delivery.
func (m *boundModel) ack() {
	if _, d := m.pick(); d != nil {
		ctx, cancel := m.w.Ctx()
		defer cancel()
		m.call(broker.AckSync(ctx, d), "AckSync")
	}
}

// ackAll acknowledges all deliveries.
func (m *boundModel) ackAll() {
	for _, c := range m.consumers {
		m.w.ack(c.held...)
		c.held = nil
	}
}

// release releases a delivery.
func (m *boundModel) release() {
	if _, d := m.pick(); d != nil {
		ctx, cancel := m.w.Ctx()
		defer cancel()
		m.waiting[name(d.Message())] = d.Message()
		m.call(d.Release(ctx, 0), "Release")
	}
}

// retry replaces a delivery by the next generation.
func (m *boundModel) retry() {
	if c, d := m.pick(); d != nil {
		next := *d.Message()
		next.Generation++
		m.waiting[name(&next)] = &next
		ctx, cancel := m.w.Ctx()
		defer cancel()
		m.call(broker.Replace(ctx, c.b, d, broker.Outgoing{Queue: m.queue, Message: &next}), "Replace")
	}
}

// close closes the Broker of a consumer, whose messages go back, and opens another.
func (m *boundModel) close() {
	i := rapid.IntRange(0, len(m.consumers)-1).Draw(m.rt, "consumer")
	c := m.consumers[i]
	for _, d := range c.held {
		m.waiting[name(d.Message())] = d.Message()
	}
	c.held = nil
	m.w.closeBroker(c.b)
	m.open(i)
}

// raise raises the bounds of all consumers.
func (m *boundModel) raise() {
	m.bounds.Key.Max++
	if m.bounds.All.Max > 0 {
		m.bounds.All.Max++
	}
	for _, c := range m.consumers {
		m.w.setBounds(c.s, m.bounds)
	}
}

// remove deletes a waiting message. A subscription may have fetched it already: then it stays.
func (m *boundModel) remove() {
	if len(m.waiting) == 0 {
		return
	}
	one := m.waiting[rapid.SampledFrom(slices.Sorted(maps.Keys(m.waiting))).Draw(m.rt, "message")]
	ctx, cancel := m.w.Ctx()
	defer cancel()
	f, _ := capability.As[broker.Finder](m.b)
	switch err := f.Delete(ctx, m.queue, one.ID); {
	case err == nil:
		delete(m.waiting, name(one))
	default:
		m.w.WantIs(err, broker.ErrNotFound, "Delete of a message that may be fetched")
	}
}

// purge removes the waiting messages. Those that the subscriptions have fetched stay, and are
// received.
func (m *boundModel) purge() {
	ctx, cancel := m.w.Ctx()
	defer cancel()
	n, err := m.w.inspector(m.b).Purge(ctx, m.queue)
	m.call(err, "Purge")
	for left := len(m.waiting) - n; left > 0; left-- {
		m.w.Until("a message that was fetched", func() bool { return m.take(m.consumers[0]) || m.take(m.consumers[1]) })
	}
	m.waiting = map[string]*broker.Message{}
}
