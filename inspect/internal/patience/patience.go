// Package patience decides for how many consumers a question waits, and which consumers have ended.
// It goes by their heartbeats and by earlier questions.
package patience

import (
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
)

const (
	// maxTold is the largest number of queues in a heartbeat. The consumer may serve further ones.
	maxTold = 64
	// missedBeats and lateAfter: the heartbeats of a consumer have stopped if so many are missing, and
	// none has come for so long.
	missedBeats = 3
	lateAfter   = 10 * time.Second
	// again is the time after which a question waits again for a consumer that answered earlier
	// questions but not the last one.
	again = time.Minute
)

// Late reports whether n is a consumer whose heartbeats have stopped, long before the observer
// gives it up.
func Late(n *liveness.Node) bool {
	return n.Online && n.Worker.Role == events.RoleConsumer && time.Since(n.Heard) > max(lateAfter, missedBeats*n.Worker.Freq)
}

// Consumers holds what questions have shown of consumers. The zero value knows nothing. Not safe
// for concurrent use.
type Consumers struct {
	met     map[string]met
	beating time.Time // since then each question has found a recent heartbeat; zero: the last has not
	newest  time.Time // the newest heartbeat of all nodes, at the last question
}

// met holds the results of questions to one consumer.
type met struct {
	answered bool      // it has answered one
	silent   time.Time // when one last waited for it without an answer; zero: it has answered since
	missed   time.Time // silent of the last such question that another consumer answered
}

// Gone reports whether a consumer whose last heartbeat came at heard, and is late, has ended. Its
// silence counts only while the buses work: another consumer has answered a question that waited
// for this one, or heartbeats of other nodes have come before and after its last one.
func (c *Consumers) Gone(id string, heard time.Time) bool {
	m := c.met[id]
	if m.missed.After(heard) {
		return true
	}
	silent := !m.silent.IsZero() && (!m.answered || m.silent.After(heard))
	beating := !c.beating.IsZero() && time.Since(c.beating) >= lateAfter && c.newest.Sub(heard) >= lateAfter/2
	return silent && beating
}

// Expected returns the number of known consumers for which a question for these nodes and queues,
// nil for all, waits. It does not wait again for a consumer that never answered. If one answered
// earlier questions but not the last, it waits a minute later. If the heartbeats of that one have
// stopped, it waits once more and then never.
func (c *Consumers) Expected(known []liveness.Node, nodes, queues []string) (n int) {
	for i := range known {
		k := &known[i]
		serves := func(queue string) bool {
			return slices.Contains(k.Worker.Queues, queue) || len(k.Worker.Queues) >= maxTold
		}
		if k.Online && k.Worker.Role == events.RoleConsumer && c.met[k.ID].awaited(k) &&
			(len(nodes) == 0 || slices.Contains(nodes, k.ID)) && (len(queues) == 0 || slices.ContainsFunc(queues, serves)) {
			n++
		}
	}
	return n
}

// awaited reports whether a question waits for the consumer k with these results.
func (m met) awaited(k *liveness.Node) bool {
	switch {
	case m.silent.IsZero():
		return true
	case !m.answered:
		return false
	case Late(k):
		return !m.silent.After(k.Heard)
	}
	return time.Since(m.silent) >= again
}

// Asked notes which of the known nodes answered a question. waited reports that the question waited
// for as long as questions wait.
func (c *Consumers) Asked(known []liveness.Node, answers func(id string) bool, waited bool) {
	now := time.Now()
	answered := false
	c.newest = time.Time{}
	for i := range known {
		answered = answered || answers(known[i].ID)
		if at := known[i].Heard; at.After(c.newest) {
			c.newest = at
		}
	}
	if now.Sub(c.newest) > lateAfter {
		c.beating = time.Time{}
	} else if c.beating.IsZero() {
		c.beating = now
	}
	all := make(map[string]met)
	for i := range known {
		k := &known[i]
		if !k.Online || k.Worker.Role != events.RoleConsumer {
			continue
		}
		m := c.met[k.ID]
		switch {
		case answers(k.ID):
			m = met{answered: true}
		case waited:
			m.silent = now
			if answered {
				m.missed = now
			}
		}
		all[k.ID] = m
	}
	c.met = all
}
