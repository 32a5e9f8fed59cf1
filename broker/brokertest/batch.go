package brokertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// batchCases returns the cases of BatchPublisher and its fallback.
func batchCases() []testCase {
	return []testCase{
		{
			Area: "batch", Name: "many messages of several queues",
			Explain: "PublishBatch publishes messages of any queues; nil means that every one is confirmed. Without a BatchPublisher the fallback does the same.",
			Run: func(w *world) {
				b := w.Open()
				queues := []string{w.queue(b, "a"), w.queue(b, "b"), w.queue(b, "c")}
				var ms []broker.Outgoing
				want := map[string][]string{}
				for i := range 300 {
					q := queues[i*i%len(queues)]
					m := msg(fmt.Sprint(i))
					ms = append(ms, broker.Outgoing{Queue: q, Message: m})
					want[q] = append(want[q], name(m))
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(broker.PublishBatch(ctx, b, ms), "PublishBatch")
				for q, ns := range want {
					for n, count := range w.drain(w.subscribe(b, q, 0), ns...) {
						if count != 1 {
							w.Errorf("%s was seen %d times, want once", n, count)
						}
					}
				}
			},
		},
		{
			Area: "batch", Name: "nothing", Explain: "A batch of no messages is done.",
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(broker.PublishBatch(ctx, b, nil), "PublishBatch of nothing")
			},
		},
		{
			Area: "batch", Name: "an error for each message",
			Explain: "If any message of a batch failed, the error is a *BatchError with the outcome of each message, in the order of the batch; the other messages are confirmed.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "good")
				missing := w.h.Prefix + "missing"
				ms := []broker.Outgoing{
					{Queue: q, Message: msg("0")},
					{Queue: missing, Message: msg("1")},
					{Queue: "not a name", Message: msg("2")},
					{Queue: q, Message: msg("3")},
					{Queue: missing, Message: msg("4")},
					{Queue: q, Message: msg("5")},
				}
				want := []error{nil, broker.ErrNoQueue, broker.ErrMalformed, nil, broker.ErrNoQueue, nil}
				if w.h.Promises.OpenQueues {
					want[1], want[4] = nil, nil
				}
				if n := w.h.Promises.MaxBody; n > 0 {
					m := msg("6")
					m.Body = make([]byte, n+1)
					ms = append(ms, broker.Outgoing{Queue: q, Message: m})
					want = append(want, broker.ErrTooLarge)
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				err := w.Clean(broker.PublishBatch(ctx, b, ms))
				be, ok := errors.AsType[*broker.BatchError](err)
				if !ok || len(be.Errs) != len(ms) {
					w.Fatalf("PublishBatch: got error %v (a %T), want a *BatchError of %d", err, err, len(ms))
				}
				for i, err := range be.Errs {
					if want[i] == nil {
						w.Must(err, "message %d", i)
						continue
					}
					w.WantIs(err, want[i], "message %d", i)
				}
				w.drain(w.subscribe(b, q, 0), "0/0", "3/0", "5/0")
			},
		},
		{
			Area: "batch", Name: "delayed and due together", Needs: []need{needsDelays},
			Explain: "The messages of a batch may have different times; each is delivered at its own.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "times")
				s := w.subscribe(b, q, 0)
				at := time.Now().Add(300 * time.Millisecond)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(broker.PublishBatch(ctx, b, []broker.Outgoing{
					{Queue: q, Message: msg("later"), At: at},
					{Queue: q, Message: msg("past"), At: time.Now().Add(-time.Hour)},
					{Queue: q, Message: msg("now")},
				}), "PublishBatch")
				for i := range 3 {
					d := w.receive(s)
					if later := d.Message().ID == "later"; later {
						w.onTime(at, "a delay of 300ms")
					} else if i == 2 {
						w.Errorf("%s came after the delayed one", name(d.Message()))
					}
					w.ack(d)
				}
			},
		},
		{
			Area: "batch", Name: "a closed Broker", Needs: []need{needsBatch},
			Explain: "Every message of a batch given to a closed Broker is ErrClosed.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "closed")
				w.closeBroker(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				err := broker.PublishBatch(ctx, b, []broker.Outgoing{{Queue: q, Message: msg("a")}, {Queue: q, Message: msg("b")}})
				for i, err := range broker.BatchErrors(err, 2) {
					w.WantIs(err, broker.ErrClosed, "message %d", i)
				}
			},
		},
	}
}
