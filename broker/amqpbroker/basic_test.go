package amqpbroker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestMessageTravelsWhole(t *testing.T) {
	for _, typ := range []amqpbroker.QueueType{amqpbroker.Quorum, amqpbroker.Classic} {
		t.Run(string(typ), func(t *testing.T) {
			b := connect(t, amqpbroker.Config{QueueType: typ})
			q := declared(t, b)
			s := subscribe(t, b, q, 10)
			want := &broker.Message{
				ID: "id", Generation: 3, ContentType: "application/json", Body: []byte(`{"a":1}`), Priority: 7,
				Expires: time.UnixMilli(1_900_000_000_123),
				Headers: map[string]any{"s": "text", "b": []byte{0, 1}, "t": true, "i": int64(-5), "f": 1.5},
				Properties: map[string]string{
					"content-encoding": "utf-8", "correlation-id": "c", "reply-to": "r", "type": "add", "priority": "5", "expiration": "600000",
				},
			}
			sent := *want
			sent.Headers = map[string]any{"x-death": "never copied", "swj-gen": "nor ours"}
			for k, v := range want.Headers {
				sent.Headers[k] = v
			}
			publish(t, b, q, &sent)
			d := receive(t, s)
			if diff := cmp.Diff(want, d.Message()); diff != "" {
				t.Errorf("the message changed on its way (-sent +received):\n%s", diff)
			}
			if n, exact := d.Deliveries(); n != 1 || !exact {
				t.Errorf("Deliveries of a fresh message: %d, %v, want 1, true", n, exact)
			}
			if err := d.Release(testwait.Long(t), 0); err != nil {
				t.Fatalf("Release: %v", err)
			}
			d = receive(t, s)
			if n, exact := d.Deliveries(); n != 2 || exact != (typ == amqpbroker.Quorum) {
				t.Errorf("Deliveries after Release: %d, %v", n, exact)
			}
			ack(t, d)
			if err := d.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrSettled) {
				t.Errorf("second Ack: %v, want ErrSettled", err)
			}
		})
	}
}

func TestDrainInOrderAndEmptied(t *testing.T) {
	b := connect(t, amqpbroker.Config{})
	q := declared(t, b)
	const n = 3000
	var ms []broker.Outgoing
	for _, id := range ids(n) {
		ms = append(ms, broker.Outgoing{Queue: q, Message: message(id)})
	}
	if err := b.PublishBatch(testwait.Long(t), ms); err != nil {
		t.Fatalf("PublishBatch: %v", err)
	}
	s := subscribe(t, b, q, 64)
	var kept []broker.Delivery
	for i, id := range ids(n) {
		d := receive(t, s)
		if d.Message().ID != id {
			t.Fatalf("delivery %d is %q, want %q: one consumer sees one publisher's order", i, d.Message().ID, id)
		}
		// Settles out of order, to use single and multiple acknowledgements.
		if kept = append(kept, d); len(kept) == 7 {
			for _, k := range []int{3, 0, 6, 1, 2, 5, 4} {
				ack(t, kept[k])
			}
			kept = kept[:0]
		}
	}
	for _, d := range kept {
		ack(t, d)
	}
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Subscription.Close: %v", err)
	}
	testwait.Until(t, "the queue is empty and nothing came back", func() bool {
		st, err := b.Stats(testwait.Long(t), q)
		return err == nil && st.Ready == 0
	})
	again := subscribe(t, b, q, 1)
	publish(t, b, q, message("sentinel"))
	if d := receive(t, again); d.Message().ID != "sentinel" {
		t.Errorf("%q was acknowledged and came again", d.Message().ID)
	}
}

func TestErrorsOfPublish(t *testing.T) {
	b := connect(t, amqpbroker.Config{MaxBody: 1000})
	q := declared(t, b)
	with := func(change func(m *broker.Message)) *broker.Message {
		m := message("m")
		change(m)
		return m
	}
	tests := []struct {
		name  string
		queue string
		m     *broker.Message
		want  error
	}{
		{"unknown queue", q + "x", message("m"), broker.ErrNoQueue},
		{"bad queue name", "no spaces", message("m"), broker.ErrMalformed},
		{"largest body", q, with(func(m *broker.Message) { m.Body = make([]byte, 1000) }), nil},
		{"larger body", q, with(func(m *broker.Message) { m.Body = make([]byte, 1001) }), broker.ErrTooLarge},
		{"large headers", q, with(func(m *broker.Message) { m.Headers = map[string]any{"h": string(make([]byte, 60<<10))} }), nil},
		{"larger headers", q, with(func(m *broker.Message) { m.Headers = map[string]any{"h": string(make([]byte, 65<<10))} }), broker.ErrTooLarge},
		{"header of a strange type", q, with(func(m *broker.Message) { m.Headers = map[string]any{"h": 1 + 2i} }), broker.ErrMalformed},
		{"header that reroutes", q, with(func(m *broker.Message) { m.Headers = map[string]any{"CC": "x"} }), broker.ErrMalformed},
		{"long header name", q, with(func(m *broker.Message) { m.Headers = map[string]any{string(make([]byte, 256)): "x"} }), broker.ErrMalformed},
		{"long id", q, with(func(m *broker.Message) { m.ID = string(make([]byte, 256)) }), broker.ErrMalformed},
		{"long property", q, with(func(m *broker.Message) { m.Properties = map[string]string{"type": string(make([]byte, 256))} }), broker.ErrMalformed},
		{"unknown property", q, with(func(m *broker.Message) { m.Properties = map[string]string{"user-id": "x"} }), broker.ErrMalformed},
		{"bad expiration", q, with(func(m *broker.Message) { m.Properties = map[string]string{"expiration": "soon"} }), broker.ErrMalformed},
		{"bad priority", q, with(func(m *broker.Message) { m.Properties = map[string]string{"priority": "256"} }), broker.ErrMalformed},
		{"no message", q, nil, broker.ErrMalformed},
	}
	var batch []broker.Outgoing
	for _, tt := range tests {
		if err := b.Publish(testwait.Long(t), tt.queue, tt.m); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		batch = append(batch, broker.Outgoing{Queue: tt.queue, Message: tt.m})
	}
	for i, err := range broker.BatchErrors(b.PublishBatch(testwait.Long(t), batch), len(batch)) {
		if !errors.Is(err, tests[i].want) {
			t.Errorf("in a batch, %s: %v, want %v", tests[i].name, err, tests[i].want)
		}
	}
	// The connection still works.
	publish(t, b, q, message("last"))
}

func TestDelays(t *testing.T) {
	for _, typ := range []amqpbroker.QueueType{amqpbroker.Quorum, amqpbroker.Classic} {
		t.Run(string(typ), func(t *testing.T) {
			b := connect(t, amqpbroker.Config{QueueType: typ, Namespace: "delays-" + string(typ)})
			q := declared(t, b)
			s := subscribe(t, b, q, 10)
			waits := []time.Duration{2 * time.Second, time.Millisecond, 300 * time.Millisecond}
			if err := b.PublishAt(testwait.Long(t), q, message("warm up"), time.Now().Add(time.Millisecond)); err != nil {
				t.Fatalf("PublishAt: %v", err)
			}
			ack(t, receive(t, s))
			due := make(map[string]time.Time)
			for _, w := range waits {
				id := fmt.Sprint(w)
				due[id] = time.Now().Add(w)
				m := message(id)
				m.Properties = map[string]string{"expiration": "1"} // the server would apply the shorter time
				if err := b.PublishAt(testwait.Long(t), q, m, due[id]); err != nil {
					t.Fatalf("PublishAt %v: %v", w, err)
				}
			}
			batched := message("batched")
			batched.Properties = map[string]string{"expiration": "1"}
			due["batched"] = time.Now().Add(400 * time.Millisecond)
			if err := b.PublishBatch(testwait.Long(t), []broker.Outgoing{{Queue: q, Message: batched, At: due["batched"]}}); err != nil {
				t.Fatalf("PublishBatch: %v", err)
			}
			for left := len(due); left > 0; {
				d := receive(t, s)
				if got := d.Message().Properties["expiration"]; got != "1" {
					t.Errorf("the property expiration of a delayed message came as %q, want 1", got)
				}
				late := time.Since(due[d.Message().ID])
				t.Logf("a delay of %s was %v late", d.Message().ID, late)
				if late < 0 || late > 30*time.Second {
					t.Errorf("a delay of %s ended %v after its time, want no less than 0", d.Message().ID, late)
				}
				if len(d.Message().Headers) != 0 {
					t.Errorf("the server's headers reached the message: %v", d.Message().Headers)
				}
				if d.Message().ID == "batched" && d.Message().Generation == 0 {
					due["batched"] = time.Now().Add(300 * time.Millisecond)
					if err := d.Release(testwait.Long(t), 300*time.Millisecond); err != nil {
						t.Fatalf("Release: %v", err)
					}
					continue
				}
				ack(t, d)
				left--
			}
			if err := b.PublishAt(testwait.Long(t), q+"x", message("m"), time.Now().Add(time.Hour)); !errors.Is(err, broker.ErrNoQueue) {
				t.Errorf("a delayed message for a queue that is not there: %v, want ErrNoQueue", err)
			}
			if err := b.PublishAt(testwait.Long(t), q, message("m"), time.Now().AddDate(9, 0, 0)); !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("a delay of 9 years: %v, want ErrUnsupported", err)
			} else if !strings.Contains(err.Error(), "longer than 8.7 years") {
				t.Errorf("a delay of 9 years: %v, want the limit to be named", err)
			}
			if err := b.PublishAt(testwait.Long(t), q, message("m"), time.Now().AddDate(8, 0, 0)); err != nil {
				t.Errorf("a delay of 8 years: %v", err)
			}
		})
	}
}

// TestDelaysAmongOtherSettings shows that delays work in a process with another queue type than the
// creator of the delay levels.
func TestDelaysAmongOtherSettings(t *testing.T) {
	const ns = "delays-quorum" // normally created by TestDelays, which saves time
	first := connect(t, amqpbroker.Config{Namespace: ns})
	if err := first.PublishAt(testwait.Long(t), declared(t, first), message("makes the levels"), time.Now().Add(time.Millisecond)); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	var book logBook
	b := connect(t, amqpbroker.Config{Namespace: ns, QueueType: amqpbroker.Classic, Logger: book.logger()})
	q := declared(t, b)
	if err := b.PublishAt(testwait.Long(t), q, message("m"), time.Now().Add(5*time.Millisecond)); err != nil {
		t.Fatalf("PublishAt among levels of another type: %v", err)
	}
	ack(t, receive(t, subscribe(t, b, q, 1)))
	if n := strings.Count(book.String(), "swj."+ns+".delay"); n == 0 || strings.Count(book.String(), "other settings") > 2 {
		t.Errorf("want one warning of the levels, and at most one of the undeliverable queue: %s", book.String())
	}
}

func TestDelayForNoQueueInFreshNamespace(t *testing.T) {
	b := connect(t, amqpbroker.Config{Namespace: testserver.Namespace()})
	if err := b.PublishAt(testwait.Long(t), "nowhere", message("m"), time.Now().Add(time.Hour)); !errors.Is(err, broker.ErrNoQueue) {
		t.Errorf("PublishAt: %v, want ErrNoQueue", err)
	}
}

// TestDelayLevelDeleted shows that a process makes a deleted delay level again.
func TestDelayLevelDeleted(t *testing.T) {
	ns := testserver.Namespace()
	b := connect(t, amqpbroker.Config{Namespace: ns, QueueType: amqpbroker.Classic})
	q := declared(t, b)
	s := subscribe(t, b, q, 10)
	publish := map[string]func(m *broker.Message, at time.Time) error{
		"single": func(m *broker.Message, at time.Time) error { return b.PublishAt(testwait.Long(t), q, m, at) },
		"batch": func(m *broker.Message, at time.Time) error {
			batch := []broker.Outgoing{{Queue: q, Message: m, At: at}}
			if err := b.PublishBatch(testwait.Long(t), batch); !errors.Is(err, broker.ErrNoQueue) {
				t.Errorf("a batch without a level: %v, want ErrNoQueue", err)
			}
			return b.PublishBatch(testwait.Long(t), batch)
		},
	}
	if err := publish["single"](message("makes the levels"), time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	ack(t, receive(t, s))
	for name, send := range publish {
		for level := range 10 {
			if err := testserver.RequireRabbit(t).DeleteQueue(fmt.Sprintf("swj.%s.delay.step.%02d", ns, level)); err != nil {
				t.Fatal(err)
			}
		}
		if err := send(message(name), time.Now().Add(100*time.Millisecond)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d := receive(t, s)
		if d.Message().ID != name {
			t.Errorf("received %s, want %s", d.Message().ID, name)
		}
		ack(t, d)
	}
}
