package runs_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/consumer/internal/runs"
)

// TestSlots shows that no more than the limit run at once and no waiter is forgotten, while the
// limit changes.
func TestSlots(t *testing.T) {
	var s runs.Slots
	var now, most, got atomic.Int64
	s.Resize(3)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithCancel(context.Background())
				if (i+g)%7 == 0 {
					cancel()
				}
				if s.TryAcquire() || s.Acquire(ctx) {
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					got.Add(1)
					now.Add(-1)
					s.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || got.Load() < 16*200 {
		t.Errorf("%d at once, %d in all", most.Load(), got.Load())
	}
	for range 3 {
		if !s.TryAcquire() {
			t.Fatal("a slot was lost")
		}
	}
	if s.TryAcquire() {
		t.Fatal("a slot too many")
	}
}
