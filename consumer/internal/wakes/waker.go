// Package wakes wakes the deferrals of revoked tasks. A revoked task that waits for an answer ends
// at once, even if the revocation does not terminate running tasks: no handler of it runs. Each
// consumer that receives the revocation wakes the deferral. The consumer that claims the deferral
// settles the task.
package wakes

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// maxPending limits the number of ids and of selectors. A revocation beyond it is found when the
// answer comes.
const maxPending = 10_000

// Limits of one call of the store: the number of deferrals that it wakes, and its duration.
const (
	wakeAtOnce  = 256
	wakeTimeout = 10 * time.Second
)

// Waker wakes the deferrals of revoked tasks. Make it with [New]. Safe for concurrent use.
type Waker struct {
	store   deferral.Waker
	selects func(queue string, state []byte, rules []revoke.Selector) bool
	failed  func(ctx context.Context, err error)

	added wake.Signal
	mu    sync.Mutex
	ids   []task.ID
	rules []revoke.Selector
}

// New returns a Waker over store. It starts nothing. selects reports whether one of the rules
// matches the task of a deferral, by its stored state. Watch calls failed with the first error of a
// series.
func New(store deferral.Waker, selects func(queue string, state []byte, rules []revoke.Selector) bool, failed func(context.Context, error)) *Waker {
	return &Waker{store: store, selects: selects, failed: failed, added: wake.New()}
}

// Add queues the ids and the selector of v for Watch, and wakes it. Above maxPending it drops the
// ids or the selector. It does nothing if w is nil. It takes w.mu and does not block.
func (w *Waker) Add(v revoke.Revocation) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if len(w.ids) < maxPending {
		w.ids = append(w.ids, v.IDs...)
	}
	if v.Selector != (revoke.Selector{}) && len(w.rules) < maxPending {
		w.rules = append(w.rules, v.Selector)
	}
	w.mu.Unlock()
	w.added.Notify()
}

// Watch wakes the deferrals of revoked tasks in the queues that queues returns, at once and after
// each Add. It blocks until ctx ends. After an error it waits and tries again. It needs its own
// goroutine, since it may read many deferrals.
func (w *Waker) Watch(ctx context.Context, queues func() []string) {
	var gap task.Backoff
	for failures := 0; ; {
		if err := w.wakePending(ctx, queues()); err == nil {
			failures = 0
			select {
			case <-w.added:
			case <-ctx.Done():
			}
		} else {
			if failures == 0 && ctx.Err() == nil {
				w.failed(ctx, err)
			}
			wake.Sleep(ctx, gap.Interval(failures))
			failures++
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// wakePending wakes the deferrals of the tasks that were revoked since its last success. It calls
// the store only if there are any. After an error it keeps the revocations for the next call and
// returns the error. It takes w.mu, but not during the calls of the store.
func (w *Waker) wakePending(ctx context.Context, queues []string) error {
	w.mu.Lock()
	ids, rules := w.ids, w.rules
	w.ids, w.rules = nil, nil
	w.mu.Unlock()
	if len(ids) == 0 && len(rules) == 0 {
		return nil
	}
	found, err := w.find(ctx, queues, rules)
	if err == nil {
		err = w.wakeAll(ctx, slices.Concat(ids, found))
	}
	if err != nil { // try again together with new revocations
		w.mu.Lock()
		w.ids, w.rules = append(ids, w.ids...), append(rules, w.rules...)
		w.mu.Unlock()
	}
	return err
}

// wakeAll wakes the deferrals of the tasks, wakeAtOnce in one call of the store, each call limited
// by wakeTimeout. Returns the first error; later deferrals are then not woken.
func (w *Waker) wakeAll(ctx context.Context, ids []task.ID) error {
	for part := range slices.Chunk(ids, wakeAtOnce) {
		call, cancel := context.WithTimeout(ctx, wakeTimeout)
		err := w.store.Wake(call, part...)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// find returns the ids of the tasks that wait for answers and match one of the rules. It reads all
// deferrals of the queues, if there are rules. Returns the first error of the store, without ids.
func (w *Waker) find(ctx context.Context, queues []string, rules []revoke.Selector) (found []task.ID, err error) {
	if len(rules) == 0 {
		return nil, nil
	}
	for _, name := range queues {
		if err := w.store.Scan(ctx, name, func(id task.ID, state []byte) bool {
			if w.selects(name, state, rules) {
				found = append(found, id)
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}
