package brokertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// badNames are queue names that have a meaning for some server, or are not valid anywhere.
var badNames = [...]string{
	"", "a.>", "*", "#", "a b", "{x}", "q:*", "$JS.API.>", "x\r\nDEL y", "'; DROP TABLE", "../../etc", ".hidden", "-dash", "_under",
	"a/b", "a\x00b", "grün", "\xff", "a%2eb", strings.Repeat("a", 129), strings.Repeat("a", 256),
}

// nameCases returns the cases of queue names, declarations, refused messages, and promises.
func nameCases() []testCase {
	malformed := "A queue's name obeys the pattern of task.CheckName; any other is ErrMalformed, in every method, before a server sees it."
	return []testCase{
		{
			Area: "names", Name: "Publish and Subscribe refuse a bad queue name", Explain: malformed,
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, q := range badNames {
					w.WantIs(b.Publish(ctx, q, msg("bad")), broker.ErrMalformed, "Publish to queue %.40q", q)
					s, err := b.Subscribe(ctx, q, broker.SubscribeOptions{})
					w.WantIs(err, broker.ErrMalformed, "Subscribe to queue %.40q", q)
					if err == nil {
						w.closeSub(s)
					}
				}
			},
		},
		{
			Area: "names", Name: "every other method refuses a bad queue name", Explain: malformed,
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				calls := methodsOfQueue(b)
				for _, q := range badNames {
					for what, call := range calls {
						w.WantIs(call(ctx, q), broker.ErrMalformed, "%s of queue %.40q", what, q)
					}
				}
			},
		},
		{
			Area: "names", Name: "the longest and oddest good names",
			Explain: "A name of 1 to 128 ASCII letters, digits, '.', '_' and '-' that begins with a letter or a digit is valid, and different names are different queues.",
			Run: func(w *world) {
				b := w.Open()
				for _, n := range []string{"a", "A", "0", "a.b", "a_b", "a-b", "a..b", "a.", strings.Repeat("x", 128-len(w.h.Prefix))} {
					q := w.queue(b, n)
					w.publish(b, q, msg("in-"+n))
				}
				for _, n := range []string{"a", "A", "a.b", "a_b", "a-b", "a..b", "a."} {
					d := w.receive(w.subscribe(b, w.h.Prefix+n, 1))
					if d.Message().ID != "in-"+n {
						w.Errorf("queue %q held %s", n, d.Message().ID)
					}
					w.ack(d)
				}
			},
		},
		{
			Area: "names", Name: "a good name that means something to a server", Needs: []need{needsQueues},
			Explain: "A name such as amq.direct is a normal queue name, or ErrMalformed; it never reaches the server's own object of that name.",
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, q := range []string{"amq.direct", "amq.fanout", "amq.rabbitmq.trace"} {
					if err := w.Clean(b.Publish(ctx, q, msg("a"))); !errors.Is(err, broker.ErrNoQueue) && !errors.Is(err, broker.ErrMalformed) {
						w.Errorf("Publish to queue %q that nobody made: got error %v, want ErrNoQueue or ErrMalformed", q, err)
					}
				}
			},
		},
		{
			Area: "names", Name: "a missing queue is ErrNoQueue", Needs: []need{needsQueues},
			Explain: "Publish to a queue that does not exist is ErrNoQueue: a message that no consumer can receive must not be confirmed. The connection continues to work.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "there")
				ctx, cancel := w.Ctx()
				defer cancel()
				for i := range 3 {
					w.WantIs(b.Publish(ctx, w.h.Prefix+"missing", msg(fmt.Sprint(i))), broker.ErrNoQueue, "Publish to a queue that does not exist")
					w.publish(b, q, msg(fmt.Sprintf("good-%d", i)))
				}
				if d, ok := capability.As[broker.Delayer](b); ok {
					err := d.PublishAt(ctx, w.h.Prefix+"missing", msg("later"), time.Now().Add(time.Minute))
					w.WantIs(err, broker.ErrNoQueue, "PublishAt to a queue that does not exist")
				}
				w.drain(w.subscribe(b, q, 0), "good-0/0", "good-1/0", "good-2/0")
			},
		},
		{
			Area: "names", Name: "Subscribe makes a queue that does not exist",
			Explain: "Subscribe creates a queue that does not exist if the configuration allows it; otherwise it is ErrNoQueue.",
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				q := w.h.Prefix + "fresh"
				s, err := b.Subscribe(ctx, q, broker.SubscribeOptions{})
				if err != nil {
					w.WantIs(err, broker.ErrNoQueue, "Subscribe to a queue that does not exist")
					return
				}
				w.publish(w.Open(), q, msg("a"))
				w.drain(s, "a/0")
			},
		},
		{
			Area: "names", Name: "Declare is idempotent",
			Explain: "Declare creates the queues that do not exist, repeatedly and from any process, and changes no existing one.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "twice")
				w.publish(b, q, msg("kept"))
				for range 2 {
					w.queue(b, "twice")
					w.queue(w.Open(), "twice")
				}
				w.drain(w.subscribe(b, q, 0), "kept/0")
			},
		},
		{
			Area: "names", Name: "a queue that exists with other settings is used as it is",
			Explain: "Declare of a queue that exists with other levels uses it as it is: its messages stay and publishing works.",
			Needs:   []need{needsPriorities},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "levels", 10, 100)
				w.publish(b, q, msg("kept"))
				w.queue(w.Open(), "levels", 50, 100, 200)
				w.queue(w.Open(), "levels")
				w.publish(b, q, msg("new"))
				w.drain(w.subscribe(w.Open(), q, 0), "kept/0", "new/0")
			},
		},
		{
			Area: "names", Name: "a header of a type that is not listed",
			Explain: "Headers are of type string, []byte, bool, int64 or float64. Another is ErrMalformed, never a panic or a silent change.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "headers")
				ctx, cancel := w.Ctx()
				defer cancel()
				m := msg("odd")
				m.Headers = map[string]any{"odd": struct{ X int }{1}}
				w.WantIs(b.Publish(ctx, q, m), broker.ErrMalformed, "Publish of a message with a struct as header")
				w.publish(b, q, msg("good"))
				w.drain(w.subscribe(b, q, 0), "good/0")
			},
		},
		{
			Area: "names", Name: "a body above MaxBody is ErrTooLarge",
			Explain: "A body larger than the broker accepts is ErrTooLarge, found before anything is sent; one of exactly that size is accepted.",
			Needs:   []need{needsMaxBody},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "large")
				ctx, cancel := w.Ctx()
				defer cancel()
				m := msg("above")
				m.Body = make([]byte, w.h.Promises.MaxBody+1)
				w.WantIs(b.Publish(ctx, q, m), broker.ErrTooLarge, "Publish of %d bytes", len(m.Body))
				m = msg("at")
				m.Body = make([]byte, w.h.Promises.MaxBody)
				w.publish(b, q, m)
				w.drain(w.subscribe(b, q, 0), "at/0")
			},
		},
		{
			Area: "names", Name: "a later generation may be a little larger",
			Explain: "A retry adds its counters to the body. A message of a later generation may exceed MaxBody by broker.RetryRoom, not more.",
			Needs:   []need{needsMaxBody},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "larger")
				ctx, cancel := w.Ctx()
				defer cancel()
				m := msg("above")
				m.Generation, m.Body = 1, make([]byte, w.h.Promises.MaxBody+broker.RetryRoom+1)
				w.WantIs(b.Publish(ctx, q, m), broker.ErrTooLarge, "Publish of %d bytes", len(m.Body))
				m = msg("at")
				m.Generation, m.Body = 1, make([]byte, w.h.Promises.MaxBody+broker.RetryRoom)
				w.publish(b, q, m)
				s := w.subscribe(b, q, 0)
				d, err := s.Receive(ctx)
				if err != nil {
					w.Fatalf("Receive: %v", err)
				}
				if n := len(d.Message().Body); n != len(m.Body) {
					w.Errorf("a body of %d bytes came back with %d", len(m.Body), n)
				}
				if err := d.Ack(ctx); err != nil {
					w.Errorf("Ack: %v", err)
				}
			},
		},
		{
			Area: "names", Name: "the promises are true",
			Explain: "An adapter offers each further ability as an interface that capability.As finds, and promises it to the suite, so that it is tested.",
			Run:     checkPromises,
		},
		{
			Area: "names", Name: "a wrapper keeps every capability",
			Explain: "Users wrap brokers to count or to log. The optional interfaces of broker, subscription and delivery are found through wrappers with Unwrap.",
			Run:     checkWrapped,
		},
		{
			Area: "names", Name: "Audit finds nothing wrong with a queue of its own",
			Explain: "Audit of a new queue reports only what Audit of the server reports. It changes nothing, and returns ErrNoQueue for a missing queue.",
			Run: func(w *world) {
				b := w.Open()
				a, ok := capability.As[broker.Auditor](b)
				if !ok {
					return
				}
				q := w.queue(b, "audited")
				w.publish(b, q, msg("m"))
				ctx, cancel := w.Ctx()
				defer cancel()
				first, err := a.Audit(ctx, q)
				if err != nil {
					w.Fatalf("Audit: %v", err)
				}
				if server, err := a.Audit(ctx, ""); err != nil || len(server) != len(first) {
					w.Errorf("Audit found %q of a queue that the adapter has made and %q, %v of the server alone", first, server, err)
				}
				for _, note := range first {
					if strings.Contains(note, q) {
						w.Errorf("Audit found %q of a queue that the adapter has made", note)
					}
				}
				w.wantStats(b, q, broker.Stats{Ready: 1})
				nobodys := w.h.Prefix + "nobodys"
				if _, err := a.Audit(ctx, nobodys); !errors.Is(err, broker.ErrNoQueue) {
					w.Errorf("Audit of a queue that nobody made: %v, want ErrNoQueue", err)
				}
				if _, err := a.Audit(ctx, nobodys); !errors.Is(err, broker.ErrNoQueue) {
					w.Errorf("Audit of a queue that nobody made, again: %v, want ErrNoQueue", err)
				}
			},
		},
		{
			Area: "names", Name: "Locate names a place",
			Explain: "Locate returns the exchange and routing key of a queue, for events: two queues are two places, and the names are not empty.",
			Run: func(w *world) {
				b := w.Open()
				x1, k1 := broker.Locate(b, w.queue(b, "one"))
				x2, k2 := broker.Locate(b, w.queue(b, "two"))
				if k1 == "" || x1 == x2 && k1 == k2 {
					w.Errorf("Locate gave (%q, %q) and (%q, %q)", x1, k1, x2, k2)
				}
			},
		},
	}
}
