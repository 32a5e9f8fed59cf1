// Package limit bounds tasks over all processes of a system: how many of a kind run at once, and how often they start. The bounds
// are kept where all processes see them, by a [Limiter]: [NewMemory] for one process, package redislimit for many. [Admit]
// has a consumer ask it before each start.
//
// A rate limit of one process needs none of this; task.WithRateLimit is cheaper.
package limit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of a Limiter. Compare with [errors.Is].
var (
	// ErrBadPermit: a permit, a holder or a lease is none, or asks for more than its limit can ever give.
	ErrBadPermit = errors.New("swarmiji: limit: bad permit")
	// ErrLost: the lease of what a holder holds has ended, or the holder never held it.
	ErrLost = errors.New("swarmiji: limit: lease lost")
	// ErrUnavailable: the store of the limits gave no answer.
	ErrUnavailable = errors.New("swarmiji: limit: unavailable")
)

// Permit is a share of a limit that a task needs to run. All who use a key must name the same bounds: those of the call at hand
// count.
type Permit struct {
	// Key names the limit: any text of 1 to 256 bytes, such as the name of a tenant.
	Key string
	// Weight is how much of the limit the task takes. 0: 1.
	Weight int
	// Max is how much may be held at a time, by all holders together. 0: there is no such bound.
	Max int
	// Rate is how much may begin in each Per: 10 and time.Second, 600 and time.Minute. 0: there is no such bound. At most 1,000,000
	// a second.
	Rate int
	Per  time.Duration // 0: a second
	// Burst is how much of the Rate may begin at once after a time without any. 0: one second's worth, at least Weight.
	Burst int
}

// Decision is the answer to Acquire.
type Decision struct {
	// Granted: the holder holds all it asked for. Otherwise it holds nothing of it, and nothing was counted.
	Granted bool
	// RetryAfter is when a rate may have room, at the earliest. 0: that cannot be told, because it depends on who holds what.
	RetryAfter time.Duration
}

// Limiter keeps limits. All methods may be called from any goroutine. Nobody waits in line: whoever comes when there is room gets it.
type Limiter interface {
	// Acquire takes all the permits for a holder, or none of them. What counts against Max is held until Release, or until the
	// lease ends that Renew prolongs, by the clock of the limiter: the permits of a process that died become free with it. A
	// holder that asks again for what it holds still holds it, once, with a new lease.
	Acquire(ctx context.Context, holder string, lease time.Duration, ps ...Permit) (Decision, error)
	// Renew prolongs the leases of all these permits, or of none: [ErrLost]. Permits without Max are not held and need none.
	Renew(ctx context.Context, holder string, lease time.Duration, ps ...Permit) error
	// Release ends them. What the holder does not hold is no error. What counts against a Rate is not given back.
	Release(ctx context.Context, holder string, ps ...Permit) error
}

// Closer is a Limiter that has something to release, such as a connection.
type Closer interface {
	// Close ends it. It may be called twice.
	Close(ctx context.Context) error
}

// MinLease is the shortest lease.
const MinLease = 10 * time.Millisecond

// maxKey is the longest key or holder, in bytes.
const maxKey = 256

// Ask is a checked permit, for authors of limiters.
type Ask struct {
	Key    string
	Weight int64
	Max    int64
	// Interval is the time between two units of the rate in microseconds; 0: no rate. Slack is how far the moment from which the rate
	// has room for nothing more may lie ahead, in microseconds: the burst times the interval.
	Interval, Slack int64
}

// Check checks what a Limiter is asked for. Its error wraps [ErrBadPermit] and names every problem.
func Check(holder string, lease time.Duration, ps []Permit) ([]Ask, error) {
	var errs []error
	if holder == "" || len(holder) > maxKey {
		errs = append(errs, fmt.Errorf("a holder's name has 1 to %d bytes, not %d", maxKey, len(holder)))
	}
	if lease < MinLease {
		errs = append(errs, fmt.Errorf("a lease of %s is shorter than %s", lease, MinLease))
	}
	asks := make([]Ask, len(ps))
	seen := make(map[string]bool, len(ps))
	for i, p := range ps {
		var err error
		if asks[i], err = p.ask(); err != nil {
			errs = append(errs, err)
		} else if seen[p.Key] {
			errs = append(errs, fmt.Errorf("key %q is asked for twice", p.Key))
		}
		seen[p.Key] = true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPermit, err)
	}
	return asks, nil
}

func (p Permit) ask() (Ask, error) {
	if p.Key == "" || len(p.Key) > maxKey {
		return Ask{}, fmt.Errorf("a key has 1 to %d bytes, not %d", maxKey, len(p.Key))
	}
	if p.Weight < 0 || p.Max < 0 || p.Rate < 0 || p.Per < 0 || p.Burst < 0 {
		return Ask{}, fmt.Errorf("key %q: a number is negative", p.Key)
	}
	a := Ask{Key: p.Key, Weight: int64(max(p.Weight, 1)), Max: int64(p.Max)}
	if a.Max > 0 && a.Weight > a.Max {
		return Ask{}, fmt.Errorf("key %q: a weight of %d never fits under %d", p.Key, a.Weight, a.Max)
	}
	if p.Rate == 0 {
		return a, nil
	}
	per := p.Per
	if per == 0 {
		per = time.Second
	}
	perSecond := float64(p.Rate) / per.Seconds()
	burst := int64(p.Burst)
	if burst == 0 {
		burst = max(int64(perSecond), a.Weight)
	}
	switch {
	case perSecond > 1e6:
		return Ask{}, fmt.Errorf("key %q: a rate above 1,000,000 a second", p.Key)
	case a.Weight > burst:
		return Ask{}, fmt.Errorf("key %q: a weight of %d never fits into a burst of %d", p.Key, a.Weight, burst)
	}
	n := int64(p.Rate)
	a.Interval = (per.Microseconds() + n - 1) / n // rather a little slower than too fast
	a.Slack = burst * a.Interval
	return a, nil
}
