package revoke

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// maxCleared bounds the ids of which is remembered that the bus does not know them.
const maxCleared = 10_000

// question is asked of the bus for all who wonder at the same time: the answer to one is as dear as to many, since the bus
// is read from its beginning.
type question struct {
	ids  map[task.ID]bool // true: revoked
	done chan struct{}
	err  error
}

// ask reports whether an id is revoked, from what the bus keeps.
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
		return false, fmt.Errorf("revoke: whether %s is revoked cannot be told: %w", id, q.err)
	}
	return q.ids[id], nil
}

// askAll asks until there is no question.
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

// askTimeout bounds one question to the bus.
const askTimeout = 30 * time.Second

// answer reads what the bus keeps.
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
			l.set.add(id, ends[id], now) // whoever looks again need not ask again
			continue
		}
		if l.set.find(id, now) == yes { // it came meanwhile
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
