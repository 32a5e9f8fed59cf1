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

// A revoked task that waits for an answer ends at once, also if the revocation does not ask for
// running tasks: no handler of it runs. Each consumer that hears of the revocation wakes the
// deferral. The consumer that claims it settles the task.

// toWake holds the revocations whose deferrals are to be woken.
type toWake struct {
	kick  wake.Signal
	mu    sync.Mutex
	ids   []task.ID
	rules []revoke.Selector
}

// maxToWake bounds it. What is left out is looked at when its answer comes.
const maxToWake = 10_000

// note has what is revoked be looked at: also what was revoked before this consumer began, and the
// bus has kept. a may be nil.
func (a *answers) note(v revoke.Revocation) {
	if a == nil || a.waker == nil {
		return
	}
	w := &a.toWake
	w.mu.Lock()
	if len(w.ids) < maxToWake {
		w.ids = append(w.ids, v.IDs...)
	}
	if v.Selector != (revoke.Selector{}) && len(w.rules) < maxToWake {
		w.rules = append(w.rules, v.Selector)
	}
	w.mu.Unlock()
	w.kick.Notify()
}

// keepWaking wakes the deferrals of revoked tasks until ctx ends. It has a goroutine of its own:
// answers do not wait while it reads many deferrals.
func (a *answers) keepWaking(ctx context.Context) {
	var gap task.Backoff
	for failures := 0; ; {
		if err := a.wakeRevoked(ctx); err == nil {
			failures = 0
			select {
			case <-a.toWake.kick:
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

// noteRevoked wakes the deferral of this run if the task is revoked. Call it after the deferral is
// saved: a revocation since the end of the handler has not found one.
func (r *run) noteRevoked() {
	c := r.queue.c
	if list := c.cfg.Revocations; list != nil && list.Knows(r.queue.name, r.request.Envelope) {
		c.answers.note(revoke.Revocation{IDs: []task.ID{r.request.ID}})
	}
}

// wakeRevoked wakes the deferrals of tasks that were revoked since its last success.
func (a *answers) wakeRevoked(ctx context.Context) error {
	w := &a.toWake
	w.mu.Lock()
	ids, rules := w.ids, w.rules
	w.ids, w.rules = nil, nil
	w.mu.Unlock()
	if len(ids) == 0 && len(rules) == 0 {
		return nil
	}
	found, err := a.chosen(ctx, rules)
	if err == nil {
		err = a.wakeAll(ctx, slices.Concat(ids, found))
	}
	if err != nil { // again, with what comes until then
		w.mu.Lock()
		w.ids, w.rules = append(ids, w.ids...), append(rules, w.rules...)
		w.mu.Unlock()
	}
	return err
}

// wakeAtOnce is how many deferrals one call wakes, and wakeTimeout how long it may take.
const (
	wakeAtOnce  = 256
	wakeTimeout = 10 * time.Second
)

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

// chosen returns the tasks that wait for answers and that one of the rules chooses.
func (a *answers) chosen(ctx context.Context, rules []revoke.Selector) (found []task.ID, err error) {
	if len(rules) == 0 {
		return nil, nil
	}
	for name, q := range a.queues {
		if err := a.waker.Scan(ctx, name, func(id task.ID, state []byte) bool {
			if q.chosen(state, rules) {
				found = append(found, id)
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// chosen reports whether one of the rules selects the task of a deferral. A deferral that cannot be
// read waits for its answer.
func (q *queue) chosen(state []byte, rules []revoke.Selector) bool {
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
