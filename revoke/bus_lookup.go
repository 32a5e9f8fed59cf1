package revoke

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// maxCleared limits the number of remembered ids that the bus does not know.
const maxCleared = 10_000

// question is one request to the bus for the ids of all concurrent callers. One request for many
// ids costs the same as for one, because the bus is read from the start.
type question struct {
	ids  map[task.ID]bool // true: revoked
	done chan struct{}
	err  error
}

// ask reports whether the bus has a revocation of id. It blocks until the bus has been read or ctx
// ends; each read takes at most askTimeout. Concurrent callers share one read. Returns [ErrClosed]
// after Close, the cause of ctx, and errors of the bus. It takes l.mu, but not while it waits.
func (l *List) ask(ctx context.Context, id task.ID) (bool, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false, ErrClosed
	}
	if l.next == nil {
		l.next = &question{ids: make(map[task.ID]bool), done: make(chan struct{})}
	}
	q := l.next
	q.ids[id] = false
	if !l.asking {
		l.asking = true
		l.tasks.Go(l.askAll)
	}
	l.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if q.err != nil {
		return false, fmt.Errorf("revoke: checking whether %s is revoked: %w", id, q.err)
	}
	return q.ids[id], nil
}

// askAll reads the bus for the callers of ask, one read after the other, until no caller waits. It
// blocks until then. ask starts it on a goroutine. It takes l.mu.
func (l *List) askAll() {
	for {
		l.mu.Lock()
		q := l.next
		l.next = nil
		if q == nil {
			l.asking = false
			l.mu.Unlock()
			return
		}
		l.asked++
		l.mu.Unlock()
		q.err = l.answer(q)
		close(q.done)
	}
}

// askTimeout limits one request to the bus.
const askTimeout = 30 * time.Second

// answer reads all revocations from the bus and sets the results of q. It adds the revoked ids to
// the set and the other ids to l.cleared, so that later lookups need no read. It blocks for at most
// askTimeout. After an error, which it returns, q has no results. It takes l.mu at the end.
func (l *List) answer(q *question) error {
	ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
	defer cancel()
	r, err := openReader(ctx, l.cfg.Events, false, time.Time{})
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.publish(ctx, marker(l.cfg.NodeID)); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	ends := make(map[task.ID]int64)
	err = r.finish(ctx, func(v *Revocation) {
		for _, id := range v.IDs {
			if _, wanted := q.ids[id]; wanted {
				ends[id] = max(ends[id], v.ends())
			}
		}
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range q.ids {
		if q.ids[id] = ends[id] > now; q.ids[id] {
			l.set.add(id, ends[id], now) // the next lookup finds it without the bus
			continue
		}
		if l.set.find(id, now) == yes { // revoked during the request
			q.ids[id] = true
			continue
		}
		if l.cleared == nil || len(l.cleared) >= maxCleared {
			l.cleared = make(map[task.ID]struct{})
		}
		l.cleared[id] = struct{}{}
	}
	return nil
}
