// Package stats reads the counters of many queues.
package stats

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
)

// atOnce is the number of queues that Read asks for at the same time.
const atOnce = 8

// Read returns the counters of queues in the order of names, nil for those that the broker does not
// have. It asks for several queues at the same time. Returns one of the errors of the broker.
func Read(ctx context.Context, i broker.Inspector, names []string) ([]*broker.Stats, error) {
	all, errs := make([]*broker.Stats, len(names)), make([]error, len(names))
	var next atomic.Int64
	var asking sync.WaitGroup
	for range min(atOnce, len(names)) {
		asking.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(names); k = int(next.Add(1)) - 1 {
				st, err := i.Stats(ctx, names[k])
				switch {
				case err == nil:
					all[k] = &st
				case !errors.Is(err, broker.ErrNoQueue):
					errs[k] = err
					next.Store(int64(len(names))) // the others need not be asked
				}
			}
		})
	}
	asking.Wait()
	return all, cmp.Or(errs...)
}
