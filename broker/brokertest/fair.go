package brokertest

import (
	"strings"

	"github.com/swarmiji/swarmiji/broker"
)

// fairCases returns the cases of fairness keys.
func fairCases() []testCase {
	return []testCase{
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
				longest := msg("longest")
				longest.Key = strings.Repeat("k", 255)
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
	}
}
