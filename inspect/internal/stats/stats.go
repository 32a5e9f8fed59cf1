// Package stats asks for many queues, several at the same time.
package stats

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
)

// atOnce is the number of queues that Each works on at the same time.
const atOnce = 8

// Each calls do with each number from 0 to n-1, eight calls at a time, and waits for their ends.
func Each(n int, do func(k int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(atOnce, n) {
		working.Go(func() {
			for k := int(next.Add(1)) - 1; k < n; k = int(next.Add(1)) - 1 {
				do(k)
			}
		})
	}
	working.Wait()
}

// Read returns the counters of queues in the order of names, nil for those that the broker does not
// have. It asks for several queues at the same time. After the first error it asks for no further
// one. Returns one of the errors of the broker.
func Read(ctx context.Context, i broker.Inspector, names []string) ([]*broker.Stats, error) {
	all, errs := make([]*broker.Stats, len(names)), make([]error, len(names))
	var failed atomic.Bool
	Each(len(names), func(k int) {
		if failed.Load() {
			return
		}
		st, err := i.Stats(ctx, names[k])
		switch {
		case err == nil:
			all[k] = &st
		case !errors.Is(err, broker.ErrNoQueue):
			errs[k] = err
			failed.Store(true)
		}
	})
	return all, cmp.Or(errs...)
}

// Existing returns the names of the queues that the broker has. Returns one of the errors of the
// broker.
func Existing(ctx context.Context, i broker.Inspector, names []string) ([]string, error) {
	counters, err := Read(ctx, i, names)
	if err != nil {
		return nil, err
	}
	var all []string
	for k, name := range names {
		if counters[k] != nil {
			all = append(all, name)
		}
	}
	return all, nil
}
