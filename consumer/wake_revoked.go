package consumer

import (
	"github.com/swarmiji/swarmiji/consumer/internal/answers"
	"github.com/swarmiji/swarmiji/revoke"
)

// selectsDeferral reports whether one of the rules matches the task of a deferral. state is the
// stored state of the deferral. It returns false for a deferral that cannot be read: that one waits
// for its answer.
func (q *queue) selectsDeferral(state []byte, rules []revoke.Selector) bool {
	kept, err := answers.Read(state)
	if err != nil {
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
