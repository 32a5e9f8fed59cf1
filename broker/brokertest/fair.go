package brokertest

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// fairCases returns the cases of fairness keys.
func fairCases() []testCase {
	return append([]testCase{
		{
			Area: "fair", Name: "bad keys",
			Explain: "A Key of more than 255 bytes, one that is not UTF-8 or has control characters, and a Weight beyond 0 to 100 are ErrMalformed.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "badkeys")
				for _, bad := range []broker.Message{
					{Key: strings.Repeat("k", 256)}, {Key: "\xff"}, {Key: "a\nb"}, {Weight: -1}, {Weight: 101},
				} {
					m := msg("bad")
					m.Key, m.Weight = bad.Key, bad.Weight
					ctx, cancel := w.Ctx()
					w.WantIs(b.Publish(ctx, q, m), broker.ErrMalformed, "Publish with the key %q and the weight %d", bad.Key, bad.Weight)
					cancel()
				}
				longest := keyed("longest", strings.Repeat("k", 255), 0)
				w.publish(b, q, longest)
				d := w.receive(w.subscribe(b, q, 1))
				if diff := diffMessage(longest, d.Message()); diff != "" {
					w.Errorf("the message with the longest key (-sent +received):\n%s", diff)
				}
				w.ack(d)
			},
		},
		{
			Area: "fair", Name: "a fair queue is refused", Needs: []need{needsNoTurns},
			Explain: "A broker without turns returns ErrUnsupported for a queue with Fair, and the error names the queue.",
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				err := broker.Declare(ctx, b, broker.Queue{Name: w.h.Prefix + "unfair", Fair: true})
				w.WantIs(err, broker.ErrUnsupported, "Declare of a fair queue")
				if err != nil && !strings.Contains(err.Error(), w.h.Prefix+"unfair") {
					w.Errorf("the error does not name the queue: %v", err)
				}
			},
		},
		{
			Area: "fair", Name: "a plain queue ignores keys", Needs: []need{needsOrder},
			Explain: "A queue without Fair carries keys and weights, and delivers in the order of arrival.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "plainkeys")
				var ms []*broker.Message
				for i := range 30 {
					ms = append(ms, keyed(fmt.Sprintf("m-%d", i), fmt.Sprint(i/10), 1+i%10))
				}
				w.publish(b, q, ms...)
				w.expectInOrder(w.subscribe(w.Open(), q, 4), names(ms...))
			},
		},
		{
			Area: "fair", Name: "a queue keeps its fairness", Needs: []need{needsTurns},
			Explain: "A queue that exists with another fairness is used as it is, in every process: Declare returns no error, and Describe shows what the queue has. Levels and fairness are independent.",
			Run: func(w *world) {
				b, other := w.Open(), w.Open()
				fair, plain := w.fairQueue(b, "fair"), w.queue(b, "plain")
				for _, at := range []broker.Broker{b, other} {
					ctx, cancel := w.Ctx()
					w.Must(broker.Declare(ctx, at, broker.Queue{Name: fair}, broker.Queue{Name: plain, Fair: true}), "Declare with another fairness")
					cancel()
					w.wantDescribed(at, broker.Queue{Name: fair, Fair: true})
					w.wantDescribed(at, broker.Queue{Name: plain})
				}
				if w.h.Promises.Priorities {
					leveled := w.fairQueue(b, "leveled", 10, 100)
					w.wantDescribed(w.Open(), broker.Queue{Name: leveled, Levels: []int{10, 100}, Fair: true})
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := broker.Describe(ctx, b, w.h.Prefix+"missing")
				w.WantIs(err, broker.ErrNoQueue, "Describe of a missing queue")
			},
		},
		{
			Area: "fair", Name: "all messages of all keys", Needs: []need{needsTurns},
			Explain: "A fair queue delivers each message once, with its key and its weight, whichever process has published and receives it.",
			Run: func(w *world) {
				b, other := w.Open(), w.Open()
				q := w.fairQueue(b, "every")
				sent := map[string]*broker.Message{}
				for i := range 300 {
					m := keyed(fmt.Sprintf("m-%d", i), fmt.Sprint("key ", i*i%23), i%4)
					sent[m.ID] = m
					w.publish([]broker.Broker{b, other}[i%2], q, m)
				}
				subs := []broker.Subscription{w.subscribe(other, q, 8), w.subscribe(w.Open(), q, 8)}
				for i := range len(sent) / 2 {
					w.takeSent(subs[i%2], sent)
				}
				w.closeSub(subs[0])
				for len(sent) > 0 {
					w.takeSent(subs[1], sent)
				}
				w.nothing(subs[1], "after all messages")
			},
		},
		{
			Area: "fair", Name: "a light key starts early", Needs: []need{needsTurns},
			Explain: "A message of a key with few messages is delivered soon although another key has a backlog: by lanes after at most 64 messages.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "light")
				w.publishAll(b, q, series("heavy", 0, 500))
				w.publish(b, q, keyed("light", "light", 0))
				if _, counts := capability.As[broker.Inspector](b); counts {
					w.holds(b, q, 501)
				}
				s := w.subscribe(w.Open(), q, 8)
				for i := range 501 {
					d := w.receive(s)
					w.ack(d)
					if d.Message().Key == "light" {
						if i > 64 {
							w.Errorf("the message of the light key came after %d of the heavy one, want 64 at most", i)
						}
						return
					}
				}
				w.Error("the message of the light key did not come")
			},
		},
	}, turnCases()...)
}

// keyed returns the message of msg with a fairness key and a weight.
func keyed(id, key string, weight int) *broker.Message {
	m := msg(id)
	m.Key, m.Weight = key, weight
	return m
}

// series returns n messages of a key with the ids KEY-0 to KEY-(n-1).
func series(key string, weight, n int) []*broker.Message {
	ms := make([]*broker.Message, n)
	for i := range ms {
		ms[i] = keyed(fmt.Sprintf("%s-%d", key, i), key, weight)
	}
	return ms
}

// fairQueue creates a fair queue and returns its full name. An error fails the case at once.
func (w *world) fairQueue(b broker.Broker, name string, levels ...int) string {
	w.Helper()
	q := w.h.Prefix + name
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(broker.Declare(ctx, b, broker.Queue{Name: q, Levels: levels, Fair: true}), "Declare(%q) with Fair", q)
	return q
}

// wantDescribed expects that Describe returns want.
func (w *world) wantDescribed(b broker.Broker, want broker.Queue) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	got, err := broker.Describe(ctx, b, want.Name)
	w.Must(err, "Describe(%q)", want.Name)
	if got.Name != want.Name || fmt.Sprint(got.Levels) != fmt.Sprint(want.Levels) || got.Fair != want.Fair {
		w.Errorf("Describe is %+v, want %+v", got, want)
	}
}

// takeSent receives and acknowledges one message, expects it to be one of sent, and removes it
// there.
func (w *world) takeSent(s broker.Subscription, sent map[string]*broker.Message) {
	w.Helper()
	d := w.receive(s)
	m := d.Message()
	if want := sent[m.ID]; want == nil {
		w.Errorf("%s was delivered twice or never sent", name(m))
	} else if diff := diffMessage(want, m); diff != "" {
		w.Errorf("%s (-sent +received):\n%s", name(m), diff)
	}
	delete(sent, m.ID)
	w.ack(d)
}

// publishAll publishes the messages in their order, in batches if the Broker has them. An error
// fails the case at once.
func (w *world) publishAll(b broker.Broker, queue string, ms []*broker.Message) {
	w.Helper()
	if _, ok := capability.As[broker.BatchPublisher](b); !ok {
		w.publish(b, queue, ms...)
		return
	}
	ctx, cancel := w.Ctx()
	defer cancel()
	out := make([]broker.Outgoing, len(ms))
	for i, m := range ms {
		out[i] = broker.Outgoing{Queue: queue, Message: m}
	}
	w.Must(broker.PublishBatch(ctx, b, out), "PublishBatch of %d messages", len(ms))
}
