package steer

import (
	"errors"
	"slices"

	"github.com/swarmiji/swarmiji/settings"
)

// Server serves queues, for [Steer.FollowGroup].
type Server interface {
	// Wanted returns the queues of the program, and Queues those that are consumed now.
	Wanted() []string
	Queues() []string
	// Serve begins to consume a queue with its configuration in the program, if it has one, changed
	// by s.
	Serve(name string, s settings.Served) error
	// Scale sets the number of workers of a queue.
	Scale(name string, workers int) error
	// Leave ends the consumption of a queue and does not wait for its running tasks.
	Leave(name string) error
}

// FollowGroup makes q serve the queues of the program and of its group. Returns its errors, joined.
// Without a group it does nothing. One call at a time.
func (s *Steer) FollowGroup(q Server) error {
	if s.cfg.Group == "" {
		return nil
	}
	served := s.state.Load().Groups[s.cfg.Group].Queues
	consumed := q.Queues()
	wanted := q.Wanted() // second: a queue that the program adds is wanted before it is consumed
	var errs []error
	for name, rule := range served {
		is := slices.Contains(consumed, name)
		switch {
		case rule.Removed && is:
			errs = append(errs, q.Leave(name))
		case rule.Removed:
		case !is:
			err := q.Serve(name, rule)
			if err == nil {
				s.workers[name] = rule.Workers
			}
			errs = append(errs, err)
		case rule.Workers > 0 && rule.Workers != s.workers[name]:
			s.workers[name] = rule.Workers
			errs = append(errs, q.Scale(name, rule.Workers))
		}
	}
	for _, name := range wanted { // the group had removed it
		if _, ruled := served[name]; !ruled && !slices.Contains(consumed, name) {
			errs = append(errs, q.Serve(name, settings.Served{}))
		}
	}
	for _, name := range consumed { // the group had added it
		if _, ruled := served[name]; !ruled && !slices.Contains(wanted, name) {
			delete(s.workers, name)
			errs = append(errs, q.Leave(name))
		}
	}
	return errors.Join(errs...)
}
