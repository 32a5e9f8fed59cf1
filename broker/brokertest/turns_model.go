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

// randomTurns is the case of random operations on a fair queue.
func randomTurns(w *world) {
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
		w.turnHistory(rt, fmt.Sprintf("turns-%d", ran))
	})
}

// turnModel is the expected content of a fair queue.
type turnModel struct {
	w     *world
	rt    *rapid.T
	b     broker.Broker
	s     broker.Subscription
	queue string
	next  int
	ready map[string][]*broker.Message // by key, in the order of delivery
	held  []broker.Delivery
	// for each pair of keys since both have ready messages: the difference of their turns now, and
	// its lowest and highest value
	pairs map[[2]string]*[3]float64
}

// turnHistory runs one random history of a fair queue, and receives the rest at its end.
func (w *world) turnHistory(rt *rapid.T, queue string) {
	m := &turnModel{w: w, rt: rt, b: w.Open(), ready: map[string][]*broker.Message{}, pairs: map[[2]string]*[3]float64{}}
	m.queue = w.fairQueue(m.b, queue)
	m.s = w.subscribe(m.b, m.queue, 1)
	actions := map[string]func(){
		"publish": m.publish, "receive": m.receive, "receive more": m.receive, "ack": m.ack, "release": m.release, "retry": m.retry,
	}
	if _, ok := capability.As[broker.Finder](m.b); ok {
		actions["delete"] = m.remove
	}
	if _, ok := capability.As[broker.Inspector](m.b); ok {
		actions["purge"] = m.purge
	}
	steps := w.h.ModelSteps
	if steps == 0 {
		steps = 20
	}
	kinds := slices.Sorted(maps.Keys(actions))
	for range rapid.IntRange(1, 2*steps).Draw(rt, "steps") {
		actions[rapid.SampledFrom(kinds).Draw(rt, "step")]()
	}
	for m.waiting() > 0 || len(m.held) > 0 {
		m.ack()
		m.receive()
	}
	w.closeBroker(m.b)
}

// turnKeys are the keys of the model. Every key has one weight.
var turnKeys = map[string]int{"": 1, "a": 1, "b": 2, "c": 5}

// waiting returns the number of ready messages.
func (m *turnModel) waiting() (n int) {
	for _, ms := range m.ready {
		n += len(ms)
	}
	return n
}

// call expects that a call of the broker succeeds.
func (m *turnModel) call(err error, what string) {
	if err = m.w.Clean(err); err != nil {
		m.rt.Fatalf("%s: %v", what, err)
	}
}

// publish publishes up to four messages of one key.
func (m *turnModel) publish() {
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(turnKeys))).Draw(m.rt, "key")
	ctx, cancel := m.w.Ctx()
	defer cancel()
	for range rapid.IntRange(1, 4).Draw(m.rt, "messages") {
		one := keyed(fmt.Sprintf("m-%d", m.next), key, turnKeys[key])
		m.next++
		m.call(m.b.Publish(ctx, m.queue, one), "Publish")
		m.ready[key] = append(m.ready[key], one)
	}
	m.settlePairs()
}

// receive receives a message if one waits and the prefetch has room. It checks its order and the
// turns.
func (m *turnModel) receive() {
	if len(m.held) > 0 || m.waiting() == 0 {
		return
	}
	d := m.w.receive(m.s)
	got := d.Message()
	if ms := m.ready[got.Key]; len(ms) == 0 || name(ms[0]) != name(got) {
		m.rt.Fatalf("%s of the key %q was delivered, want the first of %v", name(got), got.Key, names(ms...))
	}
	m.ready[got.Key] = m.ready[got.Key][1:]
	m.held = append(m.held, d)
	m.count(got.Key, 1)
	m.settlePairs()
}

// count adds turns of a key to the pairs that it belongs to.
func (m *turnModel) count(key string, n float64) {
	for pair, p := range m.pairs {
		switch key {
		case pair[0]:
			p[0] += n / float64(turnKeys[key])
		case pair[1]:
			p[0] -= n / float64(turnKeys[key])
		default:
			continue
		}
		p[1], p[2] = min(p[1], p[0]), max(p[2], p[0])
		if spread := p[2] - p[1]; spread > mostTurns {
			m.rt.Fatalf("the keys %q and %q differ by %.2f turns, at most %d are right", pair[0], pair[1], spread, mostTurns)
		}
	}
}

// mostTurns is the largest difference between two keys since any moment: one turn of each, and the
// message that was fetched before the moment.
const mostTurns = 3

// settlePairs begins the comparison of two keys that have ready messages now, and ends that of
// those that do not.
func (m *turnModel) settlePairs() {
	keys := slices.Sorted(maps.Keys(turnKeys))
	for i, a := range keys {
		for _, b := range keys[i+1:] {
			pair := [2]string{a, b}
			switch both := len(m.ready[a]) > 0 && len(m.ready[b]) > 0; {
			case !both:
				delete(m.pairs, pair)
			case m.pairs[pair] == nil:
				m.pairs[pair] = new([3]float64)
			}
		}
	}
}

// take removes the held delivery from the model and returns it, or nil.
func (m *turnModel) take() broker.Delivery {
	if len(m.held) == 0 {
		return nil
	}
	d := m.held[0]
	m.held = nil
	return d
}

// ack acknowledges the held delivery.
func (m *turnModel) ack() {
	if d := m.take(); d != nil {
		ctx, cancel := m.w.Ctx()
		defer cancel()
		m.call(broker.AckSync(ctx, d), "AckSync")
	}
}

// release releases the held delivery: it stands first in its key again. The comparisons of the key
// begin again, because its turn may be refunded at the next claim only.
func (m *turnModel) release() {
	d := m.take()
	if d == nil {
		return
	}
	ctx, cancel := m.w.Ctx()
	defer cancel()
	m.call(d.Release(ctx, 0), "Release")
	key := d.Message().Key
	m.ready[key] = append([]*broker.Message{d.Message()}, m.ready[key]...)
	m.restart(key)
}

// restart begins all comparisons of a key again.
func (m *turnModel) restart(key string) {
	for pair := range m.pairs {
		if pair[0] == key || pair[1] == key {
			delete(m.pairs, pair)
		}
	}
	m.settlePairs()
}

// retry replaces the held delivery by its next generation, at the end of its key.
func (m *turnModel) retry() {
	d := m.take()
	if d == nil {
		return
	}
	next := *d.Message()
	next.Generation++
	ctx, cancel := m.w.Ctx()
	defer cancel()
	m.call(broker.Replace(ctx, m.b, d, broker.Outgoing{Queue: m.queue, Message: &next}), "Replace")
	m.ready[next.Key] = append(m.ready[next.Key], &next)
	m.settlePairs()
}

// remove deletes a waiting message. A subscription may have fetched it already: then it stays.
func (m *turnModel) remove() {
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(turnKeys))).Draw(m.rt, "key")
	ms := m.ready[key]
	if len(ms) == 0 {
		return
	}
	i := rapid.IntRange(0, len(ms)-1).Draw(m.rt, "message")
	ctx, cancel := m.w.Ctx()
	defer cancel()
	f, _ := capability.As[broker.Finder](m.b)
	switch err := f.Delete(ctx, m.queue, ms[i].ID); {
	case err == nil:
		m.ready[key] = slices.Delete(slices.Clone(ms), i, i+1)
	default:
		m.w.WantIs(err, broker.ErrNotFound, "Delete of a message that may be fetched")
	}
	m.settlePairs()
}

// purge removes the waiting messages. One that the subscription has fetched stays.
func (m *turnModel) purge() {
	ctx, cancel := m.w.Ctx()
	defer cancel()
	i, _ := capability.As[broker.Inspector](m.b)
	n, err := i.Purge(ctx, m.queue)
	m.call(err, "Purge")
	left := m.waiting() - n
	m.ready = map[string][]*broker.Message{}
	if left < 0 || left > 1 {
		m.rt.Fatalf("Purge removed %d messages, %d too few", n, left)
	}
	if left == 1 { // it was fetched, and nothing else waits
		d := m.w.receive(m.s)
		m.held = append(m.held, d)
	}
	m.settlePairs()
}
