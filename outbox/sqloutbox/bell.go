package sqloutbox

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// firstRing and lastRing are the waits after a PublishTx before the relays are notified. A
// transaction that takes longer to commit is found by the relay's own reads.
const (
	firstRing = 10 * time.Millisecond
	lastRing  = 90 * time.Millisecond // after the first
)

// bell notifies relays after messages were stored. The writer does not know when their transaction
// commits. One goroutine serves all calls of strike and ends with the last ring. Safe for
// concurrent use.
type bell struct {
	ring func(ctx context.Context)

	mu      sync.Mutex
	struck  bool // a strike was not served yet
	cancel  context.CancelFunc
	closed  bool
	running sync.WaitGroup
}

// strike has the relays notified soon. It does not block. It takes b.mu.
func (b *bell) strike() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.struck = true
	if b.cancel == nil && !b.closed {
		var ctx context.Context
		ctx, b.cancel = context.WithCancel(context.Background())
		b.running.Go(func() { b.run(ctx) })
	}
}

// run notifies the relays twice for each strike. Strikes in the meantime are served together.
func (b *bell) run(ctx context.Context) {
	for b.next() {
		for _, d := range []time.Duration{firstRing, lastRing} {
			if wake.Sleep(ctx, d) {
				b.ring(ctx)
			}
		}
	}
}

// next reports whether there was a strike. Otherwise it marks the goroutine as ended. It takes b.mu.
func (b *bell) next() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.struck && !b.closed {
		b.struck = false
		return true
	}
	b.cancel()
	b.cancel = nil
	return false
}

// close ends the goroutine and waits for it. It takes b.mu, but not while it waits.
func (b *bell) close() {
	b.mu.Lock()
	b.closed = true
	if b.cancel != nil {
		b.cancel()
	}
	b.mu.Unlock()
	b.running.Wait()
}
