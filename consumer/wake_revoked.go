package consumer

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// A revoked task that waits for an answer ends at once, even if the revocation does not terminate
// running tasks: no handler of it runs. Each consumer that receives the revocation wakes the
// deferral. The consumer that claims the deferral settles the task.

// pendingWakes holds the revocations whose deferrals must be woken.
type pendingWakes struct {
	added wake.Signal
	mu    sync.Mutex
	ids   []task.ID
	rules []revoke.Selector
}

// maxPendingWakes limits the number of ids and of selectors. A revocation beyond it is found when
// the answer comes.
const maxPendingWakes = 10_000

// addRevocation queues v and notifies watchRevocations, which wakes the deferrals of its tasks. It
// also receives the revocations from before the start of this consumer. Above maxPendingWakes it
// drops the ids or the selector. It does nothing if a is nil or its store has no [deferral.Waker].
// It takes a.pendingWakes.mu and does not block.
func (a *answers) addRevocation(v revoke.Revocation) {
	if a == nil || a.waker == nil {
		return
	}
	w := &a.pendingWakes
	w.mu.Lock()
	if len(w.ids) < maxPendingWakes {
		w.ids = append(w.ids, v.IDs...)
	}
	if v.Selector != (revoke.Selector{}) && len(w.rules) < maxPendingWakes {
		w.rules = append(w.rules, v.Selector)
	}
	w.mu.Unlock()
	w.added.Notify()
}

// watchRevocations wakes the deferrals of revoked tasks, at once and whenever addRevocation
// notifies it. It blocks until ctx ends. After an error it waits and tries again; it logs the first
// error of a series. It needs its own goroutine, since it may read many deferrals.
func (a *answers) watchRevocations(ctx context.Context) {
	var gap task.Backoff
	for failures := 0; ; {
		if err := a.wakeRevoked(ctx); err == nil {
			failures = 0
			select {
			case <-a.pendingWakes.added:
			case <-ctx.Done():
			}
		} else {
			if failures == 0 && ctx.Err() == nil {
				a.warn(ctx, "revoked tasks that wait for answers are not looked at now", err)
			}
			wake.Sleep(ctx, gap.Interval(failures))
			failures++
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// wakeIfRevoked queues the wake of the deferral of this run if the task is known to be revoked.
// Call it after the deferral is stored: a revocation after the end of the handler did not find the
// deferral.
func (r *run) wakeIfRevoked() {
	c := r.queue.c
	if list := c.cfg.Revocations; list != nil && list.Knows(r.queue.name, r.request.Envelope) {
		c.answers.addRevocation(revoke.Revocation{IDs: []task.ID{r.request.ID}})
	}
}

// wakeRevoked wakes the deferrals of the tasks that were revoked since its last success. It calls
// the store only if there are any. After an error it keeps the revocations for the next call and
// returns the error. It takes a.pendingWakes.mu, but not during the calls of the store.
func (a *answers) wakeRevoked(ctx context.Context) error {
	w := &a.pendingWakes
	w.mu.Lock()
	ids, rules := w.ids, w.rules
	w.ids, w.rules = nil, nil
	w.mu.Unlock()
	if len(ids) == 0 && len(rules) == 0 {
		return nil
	}
	found, err := a.selectDeferred(ctx, rules)
	if err == nil {
		err = a.wakeAll(ctx, slices.Concat(ids, found))
	}
	if err != nil { // try again together with new revocations
		w.mu.Lock()
		w.ids, w.rules = append(ids, w.ids...), append(rules, w.rules...)
		w.mu.Unlock()
	}
	return err
}

// Limits of one call of the store: the number of deferrals that it wakes, and its duration.
const (
	wakeAtOnce  = 256
	wakeTimeout = 10 * time.Second
)

// wakeAll wakes the deferrals of the tasks, wakeAtOnce in one call of the store, each call limited
// by wakeTimeout. Returns the first error; later deferrals are then not woken.
func (a *answers) wakeAll(ctx context.Context, ids []task.ID) error {
	for part := range slices.Chunk(ids, wakeAtOnce) {
		call, cancel := context.WithTimeout(ctx, wakeTimeout)
		err := a.waker.Wake(call, part...)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// selectDeferred returns the ids of the tasks that wait for answers and match one of the rules. It
// reads all deferrals of all queues, if there are rules. Returns the first error of the store,
// without ids.
func (a *answers) selectDeferred(ctx context.Context, rules []revoke.Selector) (found []task.ID, err error) {
	if len(rules) == 0 {
		return nil, nil
	}
	for name, q := range a.queues {
		if err := a.waker.Scan(ctx, name, func(id task.ID, state []byte) bool {
			if q.selectsDeferral(state, rules) {
				found = append(found, id)
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// selectsDeferral reports whether one of the rules matches the task of a deferral. state is the
// stored state of the deferral. It returns false for a deferral that cannot be read: that one waits
// for its answer.
func (q *queue) selectsDeferral(state []byte, rules []revoke.Selector) bool {
	var kept deferredTask
	if json.Unmarshal(state, &kept) != nil || kept.Message.Message == nil {
		return false
	}
	e, _, err := q.c.codec.Decode(kept.Message.Message)
	if err == nil {
		err = q.c.codec.Open(q.name, e)
	}
	if err != nil {
		return false
	}
	if e.Name == "" {
		e.Name = q.cfg.Task
	}
	for i := range rules {
		if rules[i].Match(q.name, e) {
			return true
		}
	}
	return false
}
