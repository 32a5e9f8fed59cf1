package amqpresults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A reply queue can be lost: deleted, expired, or gone with its node. Both sides see to it that no future waits for ever. The
// submitter looks for the queue whenever it begins to consume it again, and says ErrLost before it declares it anew. The
// consumer goes on for a while with a record that has no queue to go to, since the submitter may be about to declare it.

// back notes that the queue is there.
func (n *replies) back() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.absent = nil
	select {
	case <-n.here:
	default:
		close(n.here)
	}
}

// away notes that the queue is not there, or cannot be consumed.
func (n *replies) away(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.absent = cause
	select {
	case <-n.here:
		n.here = make(chan struct{})
	default:
	}
}

// lose tells Receive that the queue is gone, and waits until it knows.
func (n *replies) lose(ctx context.Context, cause error) {
	select {
	case n.items <- item{err: fmt.Errorf("amqp reply queue of %s: %w: %w", n.node, resultstore.ErrLost, cause)}:
		n.held = false
	case <-ctx.Done():
	}
}

// Ready implements [resultstore.Replies]. A connection that was cut says nothing of the queue, which outlives it.
func (n *replies) Ready(ctx context.Context) error {
	for {
		n.mu.Lock()
		here := n.here
		n.mu.Unlock()
		select {
		case <-here:
			return nil
		default:
		}
		select {
		case <-here: // it may be gone again
		case <-n.ctx.Done():
			return resultstore.ErrClosed
		case <-ctx.Done():
			n.mu.Lock()
			cause := n.absent
			n.mu.Unlock()
			return failure("reply queue of "+n.node, fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, errors.Join(cause, ctx.Err())))
		}
	}
}

// How long Save goes on for a submitter whose queue is not there, and how often it tries.
const (
	absence      = 3 * time.Second
	absenceRetry = 250 * time.Millisecond
	maxAbsences  = 4096 // submitters that are remembered
)

// absences remembers the submitters whose queue was not there, and since when, so that only the first records for each wait.
type absences struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// missed notes that node's queue is not there, and reports whether that is so for good.
func (a *absences) missed(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.since[node]
	if !known {
		if a.since == nil || len(a.since) >= maxAbsences {
			a.since = make(map[string]time.Time)
		}
		at = time.Now()
		a.since[node] = at
	}
	return time.Since(at) >= absence
}

// found notes that node's queue is there.
func (a *absences) found(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, node)
}
