package brokertest

import (
	"strings"

	"github.com/swarmiji/swarmiji/broker"
)

// boundCases returns the cases of SubscribeOptions.Bounds.
func boundCases() []testCase {
	return []testCase{
		{
			Area: "bounds", Name: "bounds are refused", Needs: []need{needsNoBounds},
			Explain: "A broker without bounds returns ErrUnsupported for a subscription with Bounds, and the error names the queue.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "unbound")
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, bounds := range []broker.Bounds{
					{Key: broker.Bound{Max: 1}}, {All: broker.Bound{Rate: 1}}, {Keys: map[string]broker.Bound{"a": {Max: 1}}},
				} {
					_, err := b.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: 1, Bounds: bounds})
					w.WantIs(err, broker.ErrUnsupported, "Subscribe with %+v", bounds)
					if err != nil && !strings.Contains(err.Error(), q) {
						w.Errorf("the error does not name the queue: %v", err)
					}
				}
			},
		},
	}
}
