package consumer

import (
	"encoding/json"

	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// addRevocation queues v, whose deferrals are woken. It also receives the revocations from before
// the start of this consumer. It does nothing if a is nil or its store has no [deferral.Waker]. It
// does not block.
func (a *answers) addRevocation(v revoke.Revocation) {
	if a != nil {
		a.waker.Add(v)
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
