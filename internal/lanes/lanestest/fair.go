package lanestest

import (
	"context"

	"github.com/swarmiji/swarmiji/broker"
)

// AllFair is a Broker that declares each queue as a fair one.
type AllFair struct{ broker.Broker }

// Unwrap returns the wrapped Broker.
func (b AllFair) Unwrap() any { return b.Broker }

// Declare implements [broker.Declarer].
func (b AllFair) Declare(ctx context.Context, qs ...broker.Queue) error {
	for i := range qs {
		qs[i].Fair = true
	}
	return broker.Declare(ctx, b.Broker, qs...)
}
