package brokertest

import (
	"bytes"
	"maps"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// deliverCases returns the cases of how a published message arrives.
func deliverCases() []testCase {
	cs := []testCase{
		{
			Area: "deliver", Name: "every field makes the round trip",
			Explain: "A message arrives as it was published, because a consumer has no other data of the producer. Expires may be cut to milliseconds.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "fields")
				// two, because the publisher may keep and change its message
				want, sent := fullMessage(), fullMessage()
				sent.Expires = want.Expires
				w.publish(b, q, sent)
				d := w.receive(w.subscribe(w.Open(), q, 1))
				if diff := diffMessage(want, d.Message()); diff != "" {
					w.Errorf("the message changed on its way (-sent +received):\n%s", diff)
				}
				w.ack(d)
			},
		},
		{
			Area: "deliver", Name: "a nil map stays empty",
			Explain: "Headers and Properties that were not set have no entries on arrival: a foreign format would take them for its own.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "bare")
				w.publish(b, q, msg("bare"))
				d := w.receive(w.subscribe(b, q, 1))
				if diff := diffMessage(msg("bare"), d.Message()); diff != "" {
					w.Errorf("the message changed on its way (-sent +received):\n%s", diff)
				}
				w.ack(d)
			},
		},
		{
			Area: "deliver", Name: "Message is the same pointer each time",
			Explain: "Delivery.Message returns the same pointer each time, so that wrappers may compare and hold it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "pointer")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				if first, second := d.Message(), d.Message(); first != second {
					w.Error("two calls of Message returned different pointers")
				}
				w.ack(d)
			},
		},
		{
			Area: "deliver", Name: "a message published before any consumer waits",
			Explain: "nil from Publish means that the broker holds the message: a consumer that subscribes later receives it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "early")
				w.publish(b, q, msg("early"))
				w.closeBroker(b)
				d := w.receive(w.subscribe(w.Open(), q, 1))
				if d.Message().ID != "early" {
					w.Errorf("received %s, want early/0", name(d.Message()))
				}
				w.ack(d)
			},
		},
		{
			Area: "deliver", Name: "a waiting Receive is woken",
			Explain: "Receive waits for the next message and returns it when it arrives, without a second call.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "wake")
				s := w.subscribe(b, q, 1)
				got := make(chan string, 1)
				go func() {
					ctx, cancel := w.Ctx()
					defer cancel()
					d, err := s.Receive(ctx)
					if w.Clean(err) != nil {
						got <- err.Error()
						return
					}
					got <- name(d.Message())
				}()
				w.nothingOn(got, "Receive of an empty queue returned")
				w.publish(w.Open(), q, msg("wake"))
				if id := suite.Ends(w.World, got, "Receive"); id != "wake/0" {
					w.Errorf("Receive gave %s, want wake/0", id)
				}
			},
		},
		{
			Area: "deliver", Name: "the first delivery counts exactly 1",
			Explain: "Deliveries returns 1 for the first delivery, exactly: a consumer that saw another number would assume a crash.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "first")
				w.publish(b, q, msg("first"))
				d := w.receive(w.subscribe(b, q, 1))
				w.wantFirst(d, "a message handed out for the first time")
				w.ack(d)
			},
		},
		{
			Area: "deliver", Name: "queues are apart",
			Explain: "A message is delivered only from the queue to which it was published.",
			Run: func(w *world) {
				b := w.Open()
				q1, q2 := w.queue(b, "one"), w.queue(b, "two")
				w.publish(b, q1, msg("one"))
				w.nothing(w.subscribe(b, q2, 0), "a queue to which nothing was published")
				w.ack(w.receive(w.subscribe(b, q1, 0)))
			},
		},
	}
	for _, size := range []struct {
		name string
		body []byte
	}{
		{"an empty body", nil},
		{"NUL and 0xFF", []byte{0, 0xff, 0, '\r', '\n', 0xfe, 0x80, 0}},
		{"5 MB", bytes.Repeat([]byte("0123456789"), 500_000)},
	} {
		cs = append(cs, testCase{
			Area: "deliver", Name: "a body: " + size.name,
			Explain: "A body is bytes: an adapter neither reads nor changes them, and accepts at least 5 MB.",
			Needs: []need{func(h *Harness) string {
				return suite.Unless(h.Promises.MaxBody == 0 || h.Promises.MaxBody >= len(size.body), "MaxBody is smaller")
			}},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "body")
				m := msg("body")
				m.Body = bytes.Clone(size.body)
				w.publish(b, q, m)
				d := w.receive(w.subscribe(b, q, 1))
				if !bytes.Equal(d.Message().Body, size.body) {
					w.Errorf("%d bytes were sent, %d other ones received", len(size.body), len(d.Message().Body))
				}
				w.ack(d)
			},
		})
	}
	return cs
}

// fullMessage returns a message with every field set.
func fullMessage() *broker.Message {
	return &broker.Message{
		ID:          "9b2f6c1e-0000-4000-8000-00000000aff1",
		Generation:  7,
		ContentType: "application/x-python-serialize",
		Headers: map[string]any{
			"string": "grüße", "empty": "", "bytes": []byte{0, 1, 0xff}, "true": true, "false": false,
			"int": int64(-1 << 62), "zero": int64(0), "float": 0.1, "x.dotted-name": "v",
		},
		Properties: map[string]string{"content-encoding": "utf-8", "correlation-id": "c-1", "reply-to": "r-1", "type": "t"},
		Body:       []byte("{}"),
		Priority:   100,
		Key:        "Kündin 7",
		Weight:     100,
		Expires:    time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC(),
	}
}

// diffMessage compares two messages: times as instants to the millisecond, empty and nil maps and
// bodies as equal. It returns a description of the difference, or "".
func diffMessage(want, got *broker.Message) string {
	norm := func(m *broker.Message) broker.Message {
		n := *m
		n.Expires = n.Expires.UTC().Truncate(time.Millisecond)
		n.Headers = maps.Clone(n.Headers)
		delete(n.Headers, "swj-lane") // of an adapter with lanes, for its retries
		if len(n.Headers) == 0 {
			n.Headers = nil
		}
		if len(n.Properties) == 0 {
			n.Properties = nil
		}
		if len(n.Body) == 0 {
			n.Body = nil
		}
		return n
	}
	return cmp.Diff(norm(want), norm(got))
}
