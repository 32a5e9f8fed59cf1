package steer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Limits acquires the permits of a task by the stored limits of its queue and its name. It
// implements [middleware.Admit], see [limit.Admit]: a task without a permit is delayed, without a
// count of an attempt.
func (s *Steer) Limits(ctx context.Context, r *task.Request) (release func(), err error) {
	return s.limits(ctx, r)
}

// Probes lets one task at a time start in this process after the pause of a tripped breaker of its
// queue or its name. It implements [middleware.Admit], and delays the other tasks as Limits does.
func (s *Steer) Probes(ctx context.Context, r *task.Request) (release func(), err error) {
	return s.probes(ctx, r)
}

// permits returns the permits that a task needs by the stored limits of its queue and its name.
func (s *Steer) permits(r *task.Request) []limit.Permit {
	state := s.state.Load()
	var ps []limit.Permit
	if l, ok := state.QueueLimits[r.Queue]; ok {
		ps = appendPermits(ps, settings.QueueLimit(r.Queue), &l)
	}
	if l, ok := state.TaskLimits[r.Name]; ok {
		ps = appendPermits(ps, settings.TaskLimit(r.Name), &l)
	}
	return ps
}

// appendPermits appends the permits of the limit l to ps and returns the result: one for its
// concurrency, and one for its rate. It ignores an invalid limit that another version may have
// stored.
func appendPermits(ps []limit.Permit, key settings.Key[settings.Limit], l *settings.Limit) []limit.Permit {
	n, per, err := task.ParseRate(l.Rate)
	if err != nil || settings.CheckLimit(l) != nil {
		return ps
	}
	if l.Concurrency > 0 {
		ps = append(ps, limit.Permit{Key: key.String(), Max: l.Concurrency})
	}
	if n > 0 {
		ps = append(ps, limit.Permit{Key: l.RateKey(key), Rate: n, Per: per})
	}
	return ps
}

// probesOf returns a permit for one task at a time for each tripped breaker of r whose pause is
// over. The breakers of r are those of its queue and its name.
func (s *Steer) probesOf(r *task.Request) []limit.Permit {
	state, now := s.state.Load(), time.Now()
	var ps []limit.Permit
	if b, ok := state.QueueBreakers[r.Queue]; ok && !now.Before(b.Until) {
		ps = append(ps, limit.Permit{Key: settings.QueueBreaker(r.Queue).String(), Max: 1})
	}
	if b, ok := state.TaskBreakers[r.Name]; ok && !now.Before(b.Until) {
		ps = append(ps, limit.Permit{Key: settings.TaskBreaker(r.Name).String(), Max: 1})
	}
	return ps
}
