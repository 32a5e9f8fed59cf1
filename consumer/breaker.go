package consumer

import (
	"errors"
	"fmt"
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

// maxAttempts limits Breaker.Of.
const maxAttempts = 1000

// check returns all problems of b, joined.
func (b *Breaker) check() error {
	var errs []error
	if b.Failures < 1 || b.Failures > b.Of || b.Of > maxAttempts {
		errs = append(errs, fmt.Errorf("%d failures of %d; need 1 <= Failures <= Of <= %d", b.Failures, b.Of, maxAttempts))
	}
	if b.Pause < 0 || b.MaxPause < 0 || b.MaxPause != 0 && b.MaxPause < b.Pause {
		errs = append(errs, fmt.Errorf("Pause is %s and MaxPause %s; need 0 <= Pause <= MaxPause", b.Pause, b.MaxPause))
	}
	return errors.Join(errs...)
}

// internal returns b with its defaults. For nil it returns the zero value.
func (b *Breaker) internal() steer.Breaker {
	if b == nil {
		return steer.Breaker{}
	}
	out := steer.Breaker(*b)
	setDefault(&out.Pause, steer.DefaultPause)
	setDefault(&out.MaxPause, max(steer.DefaultMaxPause, out.Pause))
	return out
}

// countForBreakers counts the end of an attempt for the breakers of its queue and its name. ok
// reports a success. Without Config.Settings it does nothing.
func (r *run) countForBreakers(ok bool, err error) {
	c := r.queue.c
	if c.steer == nil {
		return
	}
	why := ""
	if !ok {
		why, _ = c.shown(err)
	}
	c.steer.Ended(r.queue.name, r.request.Name, r.request.StartedAt, !ok, why)
}
