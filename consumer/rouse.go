package consumer

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// A task that waits for an answer and is revoked ends at once, also when the revocation does not ask for running tasks: nothing of it runs. Each consumer
// that hears of the revocation has the deferral looked at; the one that claims it settles it.

// rousing is what is to be looked at because of revocations.
type rousing struct {
	kick  wake.Signal
	mu    sync.Mutex
	ids   []task.ID
	rules []revoke.Selector
}

// maxRousing bounds it. What is left out is looked at when its answer comes.
const maxRousing = 10_000

// watchRevocations notes what is revoked from now on.
func (a *answers) watchRevocations() (stop func()) {
	list := a.c.cfg.Revocations
	if list == nil {
		return func() {}
	}
	return list.Watch(a.note)
}

func (a *answers) note(v revoke.Revocation) {
	w := &a.rousing
	w.mu.Lock()
	if len(w.ids) < maxRousing {
		w.ids = append(w.ids, v.IDs...)
	}
	if v.Selector != (revoke.Selector{}) && len(w.rules) < maxRousing {
		w.rules = append(w.rules, v.Selector)
	}
	w.mu.Unlock()
	w.kick.Notify()
}

// rouseAlways has what is revoked be looked at until ctx ends. It goes on beside the goroutine that takes answers: it may ask for many deferrals, and they do not wait for that.
func (a *answers) rouseAlways(ctx context.Context) {
	var gap task.Backoff
	for failures := 0; ; {
		if err := a.rouse(ctx); err == nil {
			failures = 0
			select {
			case <-a.rousing.kick:
			case <-ctx.Done():
			}
		} else {
			if failures == 0 && ctx.Err() == nil {
				a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "revoked tasks that wait for answers are not looked at now",
					slog.Any("error", err), slog.String(middleware.LogNode, a.c.cfg.NodeID))
			}
			wake.Sleep(ctx, gap.Interval(failures))
			failures++
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// noteRevoked is called when a task has been deferred: a revocation that came since the handler returned has not found it.
func (r *run) noteRevoked() {
	c := r.queue.c
	if list := c.cfg.Revocations; list != nil && list.Knows(r.queue.name, r.request.Envelope) {
		c.answers.note(revoke.Revocation{IDs: []task.ID{r.request.ID}})
	}
}

// rouse has the deferrals looked at that were revoked since the last call.
func (a *answers) rouse(ctx context.Context) error {
	w := &a.rousing
	w.mu.Lock()
	ids, rules := w.ids, w.rules
	w.ids, w.rules = nil, nil
	w.mu.Unlock()
	if len(ids) == 0 && len(rules) == 0 {
		return nil
	}
	found, err := a.revokedDeferrals(ctx, ids, rules)
	if err == nil {
		err = a.rouseAll(ctx, found)
	}
	if err != nil { // again, with what comes until then
		w.mu.Lock()
		w.ids, w.rules = append(ids, w.ids...), append(rules, w.rules...)
		w.mu.Unlock()
	}
	return err
}

// rouseAtOnce is how many deferrals are changed in one transaction, and asksAtOnce how often one asks for them: each task may have any of the names.
const (
	rouseAtOnce = 256
	asksAtOnce  = 500
)

func (a *answers) rouseAll(ctx context.Context, ids []jobs.ID) error {
	for len(ids) > 0 {
		n := min(len(ids), rouseAtOnce)
		call, cancel := context.WithTimeout(ctx, answerCall)
		err := a.deferrals.Rouse(call, ids[:n])
		cancel()
		if err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func (a *answers) revokedDeferrals(ctx context.Context, tasks []task.ID, rules []revoke.Selector) (found []jobs.ID, err error) {
	names := a.c.mux.Names()
	for len(tasks) > 0 {
		n := min(len(tasks), max(1, asksAtOnce/max(1, len(names))))
		call, cancel := context.WithTimeout(ctx, answerCall)
		ids, err := a.deferrals.Find(call, names, tasks[:n])
		cancel()
		if err != nil {
			return nil, err
		}
		found, tasks = append(found, ids...), tasks[n:]
	}
	if len(rules) == 0 {
		return found, nil
	}
	for name, q := range a.queues {
		if err := a.deferrals.List(ctx, name, func(id jobs.ID, _ string, data []byte) bool {
			if q.chosen(data, rules) {
				found = append(found, id)
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// chosen reports whether one of the rules chooses the task of a deferral. One that cannot be read is looked at when its answer comes.
func (q *queue) chosen(data []byte, rules []revoke.Selector) bool {
	var kept deferredTask
	if json.Unmarshal(data, &kept) != nil || kept.Message.Message == nil {
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
