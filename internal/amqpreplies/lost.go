package amqpreplies

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A reply queue can be lost: deleted, expired, or gone with its node. No future may wait forever
// then. The submitter checks the queue whenever it starts to consume it again, and reports ErrLost
// before it declares it. The consumer tries for a while to send a record without a queue, because
// the submitter may be about to declare it.

// markPresent records that the queue exists, clears n.absent and wakes Ready. It takes n.mu.
func (n *replies) markPresent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.absent = nil
	select {
	case <-n.present:
	default:
		close(n.present)
	}
}

// markAbsent records that the queue does not exist or cannot be consumed. Ready waits from then on,
// and reports cause if its ctx ends. It takes n.mu.
func (n *replies) markAbsent(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.absent = cause
	select {
	case <-n.present:
		n.present = make(chan struct{})
	default:
	}
}

// reportLost sends ErrLost to Receive and blocks until Receive has taken it or ctx ends. Once it is
// taken, reportLost sets n.held to false, so that the next declare makes the queue again. Call it
// on the stream's goroutine.
func (n *replies) reportLost(ctx context.Context, cause error) {
	select {
	case n.items <- item{err: fmt.Errorf("amqp reply queue of %s: %w: %w", n.node, resultstore.ErrLost, cause)}:
		n.held = false
	case <-ctx.Done():
	}
}

// Ready implements [resultstore.Replies]: it waits until the queue exists as far as known, and
// returns nil. A lost connection alone does not make it wait, because the queue outlives the
// connection. Returns ErrUnavailable with the cause of the loss when ctx ends, and ErrClosed after
// Close. It takes n.mu, but not while it waits. Safe for concurrent use.
func (n *replies) Ready(ctx context.Context) error {
	for {
		n.mu.Lock()
		present := n.present
		n.mu.Unlock()
		select {
		case <-present:
			return nil
		default:
		}
		select {
		case <-present: // it may be gone again
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

// absence is the time for which Save tries to send to a missing queue. absenceRetry is the delay
// between its attempts.
const (
	absence      = 3 * time.Second
	absenceRetry = 250 * time.Millisecond
	maxAbsences  = 4096 // submitters that are remembered
)

// absences remembers since when the queue of each submitter is missing, so that only the first
// records for a submitter wait. Safe for concurrent use.
type absences struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// missed records that node's queue is missing; the first call sets the time. It returns true if
// that time is at least absence ago. If maxAbsences submitters are known it forgets all of them
// before it adds a new one. It takes a.mu.
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

// found records that node's queue exists: it deletes the time that missed has set. It takes a.mu.
func (a *absences) found(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, node)
}
