package intake

import "time"

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
