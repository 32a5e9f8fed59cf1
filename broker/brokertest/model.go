package brokertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// modelCases returns the case that compares a queue with a model in random histories.
func modelCases() []testCase {
	return []testCase{{
		Area: "model", Name: "random histories",
		Explain: "Messages are published, received, settled, cut and closed in any order: the queue holds exactly the messages that were confirmed and not removed, and at most one consumer holds each.",
		Run: func(w *world) {
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
				// rapid has no limit for one test. After a failure it needs every run, to shrink the history.
				if ran++; ran > limit && !failed {
					return
				}
				defer func() { failed = failed || rt.Failed() }()
				w.history(rt, fmt.Sprintf("model-%d", ran))
			})
		},
	}}
}

// model holds the expected content of a queue, beside the real queue.
type model struct {
	w     *world
	rt    *rapid.T
	queue string
	next  int

	waiting map[string]bool // published and not held
	// removed on a connection that was cut later: the server may not know of it
	maybe map[string]bool
	dead  map[string]bool
	procs []*process
}

// process is one Broker with a subscription.
type process struct {
	b       broker.Broker
	s       broker.Subscription
	held    []broker.Delivery
	removed map[string]bool // acknowledged or dead-lettered on this connection
}

// history runs one random history of a queue with two processes, and checks its end. A difference
// from the model fails rt.
func (w *world) history(rt *rapid.T, queue string) {
	m := &model{w: w, rt: rt, waiting: map[string]bool{}, maybe: map[string]bool{}, dead: map[string]bool{}}
	defer func() {
		for _, p := range m.procs {
			ctx, cancel := w.Ctx()
			if err := w.Clean(p.b.Close(ctx)); err != nil {
				rt.Errorf("Broker.Close: %v", err)
			}
			cancel()
		}
	}()
	for range 2 {
		m.procs = append(m.procs, &process{b: w.Open(), removed: map[string]bool{}})
	}
	m.queue = w.queue(m.procs[0].b, queue)
	for _, p := range m.procs {
		p.s = w.subscribe(p.b, m.queue, 0)
	}
	actions := map[string]func(*rapid.T){
		"publish": func(*rapid.T) { m.publish() },
		"receive": func(*rapid.T) { m.receive() },
		"ack": func(*rapid.T) {
			m.settle(func(ctx context.Context, p *process, d broker.Delivery) error {
				if err := broker.AckSync(ctx, d); err != nil {
					return err
				}
				p.removed[name(d.Message())] = true
				return nil
			})
		},
		"release": func(*rapid.T) {
			m.settle(func(ctx context.Context, _ *process, d broker.Delivery) error {
				err := d.Release(ctx, 0)
				if err == nil {
					m.waiting[name(d.Message())] = true
				}
				return err
			})
		},
		"bury": func(*rapid.T) {
			m.settle(func(ctx context.Context, p *process, d broker.Delivery) error {
				err := d.DeadLetter(ctx, broker.Dead{Reason: "why"})
				if err == nil {
					m.dead[name(d.Message())] = true
					p.removed[name(d.Message())] = true
				}
				return err
			})
		},
		"resubscribe": func(*rapid.T) { m.resubscribe() },
		"reopen":      func(*rapid.T) { m.reopen() },
	}
	if w.h.Sever != nil {
		actions["sever"] = func(*rapid.T) { m.sever() }
	}
	if w.h.Promises.Dedupe {
		actions["publish again"] = func(*rapid.T) { m.publishAgain() }
	}
	steps := w.h.ModelSteps
	if steps == 0 {
		steps = 20
	}
	kinds := slices.Sorted(maps.Keys(actions))
	for range rapid.IntRange(1, steps).Draw(rt, "steps") {
		actions[rapid.SampledFrom(kinds).Draw(rt, "step")](rt)
	}
	m.end()
}

// pick returns a process that rapid draws.
func (m *model) pick() *process { return rapid.SampledFrom(m.procs).Draw(m.rt, "process") }

// publish publishes a new message with a random process, and adds it to the waiting ones.
func (m *model) publish() {
	id := fmt.Sprintf("m%d", m.next)
	m.next++
	m.send(m.pick(), msg(id))
	m.waiting[id+"/0"] = true
}

// publishAgain publishes a waiting message once more with a random process. The expected content
// does not change. It does nothing if no message waits.
func (m *model) publishAgain() {
	known := slices.Sorted(maps.Keys(m.waiting))
	if len(known) == 0 {
		return
	}
	id, _, _ := strings.Cut(rapid.SampledFrom(known).Draw(m.rt, "again"), "/")
	m.send(m.pick(), msg(id))
}

// send publishes a message with p. An error ends the history.
func (m *model) send(p *process, message *broker.Message) {
	ctx, cancel := m.w.Ctx()
	defer cancel()
	if err := m.w.Clean(p.b.Publish(ctx, m.queue, message)); err != nil {
		m.rt.Fatalf("Publish(%s): %v", name(message), err)
	}
}

// receive receives one message in any process that holds one, and passes it to check. It does
// nothing if the model expects no waiting message. It ends the history if no message arrives within
// the suite's patience.
func (m *model) receive() {
	if len(m.waiting) == 0 {
		return
	}
	done, cancel := context.WithCancel(context.Background())
	cancel() // only messages that are held: the process that the server has chosen is not known
	got := m.w.Poll(func() bool {
		for _, p := range m.procs {
			d, err := p.s.Receive(done)
			if err == nil {
				m.check(p, d)
				return true
			}
			if !errors.Is(m.w.Clean(err), context.Canceled) {
				m.rt.Fatalf("Receive: %v", err)
			}
		}
		return false
	})
	if !got {
		m.rt.Fatalf("nothing was handed out; these should wait: %v", slices.Sorted(maps.Keys(m.waiting)))
	}
}

// check moves the message of d from the expected ones to those that p holds. It ends the history if
// the model does not expect the message.
func (m *model) check(p *process, d broker.Delivery) {
	n := name(d.Message())
	if !m.waiting[n] && !m.maybe[n] {
		m.rt.Fatalf("%s was handed out; only these wait: %v", n, slices.Sorted(maps.Keys(m.waiting)))
	}
	delete(m.waiting, n)
	delete(m.maybe, n)
	p.held = append(p.held, d)
}

// settle settles one held delivery of a random process with how. It does nothing if the process
// holds none. After an error that a cut connection explains, the message counts as waiting or as
// one that may wait. Any other error ends the history.
func (m *model) settle(how func(ctx context.Context, p *process, d broker.Delivery) error) {
	p := m.pick()
	if len(p.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.held)-1).Draw(m.rt, "delivery")
	d := p.held[i]
	p.held = slices.Delete(p.held, i, i+1)
	ctx, cancel := m.w.Ctx()
	defer cancel()
	err := m.w.Clean(how(ctx, p, d))
	switch {
	case err == nil:
	case errors.Is(err, broker.ErrLeaseLost) && m.w.h.Sever != nil:
		m.waiting[name(d.Message())] = true // fetched just before the end of the connection was noticed
	case transient(err) && m.w.h.Sever != nil:
		m.maybe[name(d.Message())] = true // it is not known whether the server has settled it
	default:
		m.rt.Fatalf("settling %s: %v", name(d.Message()), err)
	}
}

// resubscribe closes a subscription and opens another. Deliveries that were received stay with
// their process.
func (m *model) resubscribe() {
	p := m.pick()
	m.w.closeSub(p.s)
	p.s = m.w.subscribe(p.b, m.queue, 0)
}

// reopen closes a Broker, which returns all its messages, and opens another.
func (m *model) reopen() {
	p := m.pick()
	m.w.closeBroker(p.b)
	m.giveBack(p)
	p.b = m.w.Open()
	p.s = m.w.subscribe(p.b, m.queue, 0)
}

// sever cuts the connection of a random process that holds a delivery, and waits until its Broker
// works again. If a cut loses deliveries, it waits until each Lost channel is closed, and counts
// the messages as waiting. Messages that the process dead-lettered, or acknowledged without
// AckSync, may wait again. It does nothing if the process holds none.
func (m *model) sever() {
	p := m.pick()
	if len(p.held) == 0 {
		return
	}
	m.w.h.Sever(m.w.TB, p.b)
	for n := range p.removed {
		if _, sync := capability.As[broker.SyncAcker](p.held[0]); !sync || m.dead[n] {
			m.maybe[n] = true
		}
	}
	if !m.w.h.Promises.Outlives {
		for _, d := range p.held {
			suite.Ends(m.w.World, d.Lost(), "Lost after the connection was cut")
		}
		m.giveBack(p)
	}
	m.w.publishSurely(p.b, m.w.queue(p.b, "probe"), msg(fmt.Sprintf("probe-%d", m.w.next())))
}

// giveBack counts the messages that p holds as waiting again, and forgets its removed ones.
func (m *model) giveBack(p *process) {
	for _, d := range p.held {
		m.waiting[name(d.Message())] = true
	}
	p.held = nil
	p.removed = map[string]bool{}
}

// end returns all messages, receives every waiting message, and checks that no other message
// exists.
func (m *model) end() {
	for _, p := range m.procs {
		m.w.closeBroker(p.b)
		m.giveBack(p)
	}
	last := &process{b: m.w.Open(), removed: map[string]bool{}}
	m.procs = []*process{last}
	last.s = m.w.subscribe(last.b, m.queue, 0)
	for len(m.waiting) > 0 {
		ctx, cancel := m.w.Ctx()
		d, err := last.s.Receive(ctx)
		cancel()
		if m.w.Clean(err) != nil {
			m.rt.Fatalf("Receive: %v; these should wait: %v", err, slices.Sorted(maps.Keys(m.waiting)))
		}
		m.check(last, d)
		m.w.ack(d)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if i, ok := capability.As[broker.Inspector](last.b); ok {
		ctx, cancel := m.w.Ctx()
		defer cancel()
		if st, err := i.Stats(ctx, m.queue); m.w.Clean(err) != nil || st.Ready > len(m.maybe) {
			m.rt.Fatalf("at the end Stats is %+v, %v; nothing should wait", st, err)
		}
	}
	if d, err := last.s.Receive(done); err == nil {
		m.check(last, d)
	}
}
