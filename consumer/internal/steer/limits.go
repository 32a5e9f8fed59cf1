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
		ps = appendPermit(ps, settings.QueueLimit(r.Queue).String(), &l)
	}
	if l, ok := state.TaskLimits[r.Name]; ok {
		ps = appendPermit(ps, settings.TaskLimit(r.Name).String(), &l)
	}
	return ps
}

// appendPermit appends the permit of the limit l to ps and returns the result. It ignores an empty
// limit, and an invalid one that another version may have stored.
func appendPermit(ps []limit.Permit, key string, l *settings.Limit) []limit.Permit {
	if settings.CheckLimit(l) != nil || l.Rate == "" && l.Concurrency == 0 {
		return ps
	}
	n, per, err := task.ParseRate(l.Rate)
	if err != nil {
		return ps
	}
	return append(ps, limit.Permit{Key: key, Max: l.Concurrency, Rate: n, Per: per})
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
