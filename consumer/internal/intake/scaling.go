package intake

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Scaling decides about the number of workers of a queue.
type Scaling struct {
	Min, Max  int
	KeepAlive time.Duration // for how long fewer workers must suffice before some are removed
	MaxLoad   float64       // above this load no workers are added
}

// Sample holds the numbers that one decision uses.
type Sample struct {
	At      time.Time
	Workers int // configured number of workers
	Active  int // running handlers
	Ready   int // tasks that wait for a consumer; negative: unknown
	Load    float64
}

// Decide returns the number of workers that the queue should have after the sample l, within Min
// and Max. It has no other effect.
//
//   - A number outside of Min and Max, set by Scale, becomes the nearest limit.
//   - If all workers are busy or tasks wait, workers are added, up to twice as many. Above MaxLoad
//     the number stays.
//   - If fewer workers would have been enough for KeepAlive, at most half of them are removed.
//
// idle is the time since which fewer workers would have been enough, or zero. since is the value to
// pass as idle to the next call.
func (a *Scaling) Decide(l Sample, idle time.Time) (workers int, since time.Time) {
	need := l.Active + max(l.Ready, 0)
	if l.Active >= l.Workers { // all workers are busy, so tasks may wait in the prefetch as well
		need = max(need, l.Workers+1)
	}
	need = min(max(need, a.Min), a.Max)
	switch {
	case l.Workers < a.Min || l.Workers > a.Max: // Scale has set a number outside the limits
		return min(max(l.Workers, a.Min), a.Max), time.Time{}
	case need > l.Workers:
		if l.Load > a.MaxLoad {
			return l.Workers, time.Time{}
		}
		return min(need, 2*l.Workers), time.Time{} // at most double the workers between two samples
	case need == l.Workers:
		return l.Workers, time.Time{}
	case idle.IsZero():
		return l.Workers, l.At
	case l.At.Sub(idle) < a.KeepAlive:
		return l.Workers, idle
	}
	return max(need, l.Workers/2), time.Time{}
}

// Autoscaler scales the workers of a queue at intervals.
type Autoscaler struct {
	Scaling
	Every   time.Duration
	Queue   *Queue
	Workers *Workers
	// Inspector reads the length of the queue; nil: it is unknown.
	Inspector broker.Inspector
	Load      func() float64 // the load of the machine; nil: 0
	Scale     func(workers int) error
	Log       func(level slog.Level, msg string, attrs ...slog.Attr)
}

// Run takes a sample of the queue every Every and scales its workers, until ctx ends. It blocks
// until then. While the queue is paused, its workers are limited, or the broker does not answer, it
// changes nothing. A pause restarts KeepAlive. It logs each change, and each error of Scale before
// the end of ctx.
func (a *Autoscaler) Run(ctx context.Context) {
	tick := time.NewTicker(a.Every)
	defer tick.Stop()
	var idle time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if a.Queue.Paused() || a.Workers.Limited() {
			idle = time.Time{}
			continue
		}
		l, err := a.sample(ctx)
		if err != nil {
			continue // the broker is unreachable: the queue logs that
		}
		var n int
		if n, idle = a.Decide(l, idle); n == l.Workers {
			continue
		}
		if err := a.Scale(n); err != nil && ctx.Err() == nil {
			a.Log(slog.LevelWarn, "autoscaling failed", slog.Int("workers", n), slog.Any("error", err))
			continue
		}
		a.Log(slog.LevelInfo, "scaled", slog.Int("from", l.Workers), slog.Int("workers", n), slog.Int("ready", l.Ready))
	}
}

// sampleTimeout limits the read of the waiting tasks of a queue.
const sampleTimeout = 10 * time.Second

// sample reads the number of workers, running handlers (at most the number of workers) and waiting
// tasks of the queue, and calls Load. It returns the error of the broker, also if that does not
// answer within sampleTimeout. Without an inspector the number of waiting tasks is -1, unknown;
// without Load the load is 0.
func (a *Autoscaler) sample(ctx context.Context) (Sample, error) {
	l := Sample{Workers: a.Workers.Count(), Ready: -1}
	if a.Inspector != nil {
		asking, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		s, err := a.Inspector.Stats(asking, a.Queue.cfg.Queue.Name)
		if err != nil {
			return l, err
		}
		l.Ready = s.Ready
	}
	l.Active = int(min(a.Workers.Slots.Used(), int64(l.Workers)))
	if a.Load != nil {
		l.Load = a.Load()
	}
	l.At = time.Now()
	return l, nil
}
