package consumer

import (
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/steer"
)

// Breaker pauses a queue, or the tasks with one name, when many attempts fail. The pause is stored
// in Config.Settings, so it holds for all consumers.
//
// When the pause ends, each consumer starts one task at a time. A success ends the breaker. A
// failure pauses again, for twice the time, up to MaxPause. Retries count as failures; snoozes,
// deferrals and revocations do not count.
type Breaker struct {
	// Failures of the last Of attempts in this consumer trip the breaker: 1 <= Failures <= Of <= 1000.
	Failures, Of int
	// Pause is the first pause. Default: 30s.
	Pause time.Duration
	// MaxPause limits later ones. Default: 1h, or Pause if that is longer.
	MaxPause time.Duration
}

// internal returns b for package steer. For nil it returns the zero value.
func (b *Breaker) internal() steer.Breaker {
	if b == nil {
		return steer.Breaker{}
	}
	return steer.Breaker(*b)
}

// countForBreakers counts the end v of an attempt for the breakers of its queue and its name. It
// counts successes, failures and retries. Without Config.Settings it does nothing.
func (r *run) countForBreakers(v verdict) {
	c, ok := r.queue.c, v.kind == succeeded
	if c.steer == nil || !ok && v.kind != failed && v.kind != retry {
		return
	}
	why := ""
	if !ok {
		why, _ = c.shown(v.err)
	}
	c.steer.Ended(r.queue.name, r.request.Name, r.request.StartedAt, !ok, why)
}
