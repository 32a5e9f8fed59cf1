package steer

import (
	"errors"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/settings"
)

// Server serves queues, for [Steer.FollowGroup].
type Server interface {
	// Wanted returns the queues of the program, and Queues those that are consumed now.
	Wanted() []string
	Queues() []string
	// Serve begins to consume a queue with its configuration in the program, if it has one, changed
	// by s. Of a consumed queue it changes only the number of workers.
	Serve(name string, s settings.Served) error
	// Leave ends the consumption of a queue and does not wait for its running tasks.
	Leave(name string) error
}

// FollowGroup makes q serve the queues of the program and of the group, without those that the
// group has removed. It calls Serve for a missing queue, and for a new number of workers. It calls
// Leave for a consumed queue that is no longer wanted. Returns the errors of q, joined. Without a
// group it does nothing. One call at a time.
func (s *Steer) FollowGroup(q Server) error {
	if s.cfg.Group == "" {
		return nil
	}
	served := s.state.Load().Groups[s.cfg.Group].Queues
	consumed := q.Queues()
	wanted := q.Wanted() // second: a queue that the program adds is wanted before it is consumed
	var errs []error
	names := slices.AppendSeq(slices.Concat(wanted, consumed), maps.Keys(served))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		rule, ruled := served[name] // the zero rule: as the program configures it
		want, is := !rule.Removed && (ruled || slices.Contains(wanted, name)), slices.Contains(consumed, name)
		var err error
		switch {
		case want && (!is || rule.Workers != s.workers[name]):
			s.workers[name] = rule.Workers
			err = q.Serve(name, rule)
		case is && !want:
			delete(s.workers, name)
			err = q.Leave(name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
