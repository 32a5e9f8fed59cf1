package steer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Limits decides whether a task may start now by the stored limits of its queue and its name. It
// implements [middleware.Admit].
func (s *Steer) Limits(ctx context.Context, r *task.Request) (release func(), err error) {
	return s.limits(ctx, r)
}

// Probes lets one task at a time start while a breaker of its queue or its name is probed. It
// implements [middleware.Admit].
func (s *Steer) Probes(ctx context.Context, r *task.Request) (release func(), err error) {
	return s.probes(ctx, r)
}

// permits returns the permits that a task needs by the stored limits.
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

// appendPermit appends the permit of a limit. An invalid or empty limit, of another version, is
// ignored.
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

// probesOf returns the permits that a task needs while its breakers are probed.
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
