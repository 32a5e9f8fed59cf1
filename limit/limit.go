// Package limit limits tasks over all processes of a system: how many run at the same time, and how
// often they start. A [Limiter] stores the limits: [NewMemory] for one process, package redislimit
// for many. [Admit] makes a consumer ask it before each start.
//
// For a rate limit within one process, task.WithRateLimit is cheaper.
package limit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of a Limiter. Compare them with [errors.Is].
var (
	// ErrBadPermit: a permit, a holder or a lease is invalid, or a permit exceeds its own limit.
	ErrBadPermit = errors.New("swarmiji: limit: bad permit")
	// ErrLost: the lease has ended, or the holder did not hold the permits.
	ErrLost = errors.New("swarmiji: limit: lease lost")
	// ErrUnavailable: the store of the limits did not answer.
	ErrUnavailable = errors.New("swarmiji: limit: unavailable")
)

// Permit is a share of a limit that a task needs to run. All users of a key must use the same
// limits, because each call applies its own.
type Permit struct {
	// Key identifies the limit: any text of 1 to 256 bytes, for example the name of a tenant.
	Key string
	// Weight is the share of the limit that the task uses. Default: 1.
	Weight int
	// Max is the maximum total weight that all holders together hold at a time. 0: no maximum.
	Max int
	// Rate is the maximum total weight that starts in each Per, for example 600 in time.Minute. At
	// most 1,000,000 per second. 0: no rate.
	Rate int
	Per  time.Duration // default: one second
	// Burst is the maximum weight that starts at once after a pause. Default: the Rate of one second,
	// at least Weight.
	Burst int
}

// Decision is the result of Acquire.
type Decision struct {
	// Granted reports that the holder holds all permits. Otherwise it holds none, and nothing was
	// counted.
	Granted bool
	// RetryAfter is the minimum time until the rate admits the holder. 0: unknown, because it depends
	// on other holders.
	RetryAfter time.Duration
}

// Limiter stores limits. Implementations are safe for concurrent use. Waiting holders do not form a
// queue: a free permit goes to the next caller.
type Limiter interface {
	// Acquire acquires all permits for a holder, or none. Weight that counts for Max is held until
	// Release or until the lease ends, on the limiter's clock. Renew extends the lease. So the permits
	// of a dead process become free.
	//
	// If the holder already holds the permits, it still holds them once, with a new lease.
	Acquire(ctx context.Context, holder string, lease time.Duration, ps ...Permit) (Decision, error)
	// Renew extends the leases of all permits. Returns [ErrLost] if the holder does not hold one of
	// them; then no lease changes. Permits without Max are not held and are ignored.
	Renew(ctx context.Context, holder string, lease time.Duration, ps ...Permit) error
	// Release releases the permits of a holder. Permits that it does not hold are ignored. Weight
	// counted for a Rate is not restored.
	Release(ctx context.Context, holder string, ps ...Permit) error
}

// Closer is a Limiter that holds resources, such as a connection.
type Closer interface {
	// Close releases the resources. It is idempotent.
	Close(ctx context.Context) error
}

// MinLease is the shortest lease.
const MinLease = 10 * time.Millisecond

// maxKey is the maximum length of a key or holder, in bytes.
const maxKey = 256

// Ask is a checked permit, for authors of limiters.
type Ask struct {
	Key    string
	Weight int64
	Max    int64
	// Interval is the time between two units of the rate, in microseconds; 0: no rate. Slack is how
	// far ahead the rate may be used, in microseconds: the burst times the interval.
	Interval, Slack int64
}

// Check checks the arguments of a Limiter's methods. It returns the permits with their defaults, in
// the same order. Without permits the list is empty. Its error wraps [ErrBadPermit] and joins all
// problems, such as a key that occurs twice; the list is nil then.
func Check(holder string, lease time.Duration, ps []Permit) ([]Ask, error) {
	var errs []error
	if holder == "" || len(holder) > maxKey {
		errs = append(errs, fmt.Errorf("a holder's name has 1 to %d bytes, not %d", maxKey, len(holder)))
	}
	if lease < MinLease {
		errs = append(errs, fmt.Errorf("the lease %s is shorter than %s", lease, MinLease))
	}
	asks := make([]Ask, len(ps))
	seen := make(map[string]bool, len(ps))
	for i, p := range ps {
		var err error
		if asks[i], err = p.ask(); err != nil {
			errs = append(errs, err)
		} else if seen[p.Key] {
			errs = append(errs, fmt.Errorf("key %q occurs twice", p.Key))
		}
		seen[p.Key] = true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPermit, err)
	}
	return asks, nil
}

// ask returns p with its defaults set and its rate converted to microseconds. Returns an error for
// a bad key, a negative number, a rate that is too high, and a Weight above Max or Burst.
func (p Permit) ask() (Ask, error) {
	if p.Key == "" || len(p.Key) > maxKey {
		return Ask{}, fmt.Errorf("a key has 1 to %d bytes, not %d", maxKey, len(p.Key))
	}
	if p.Weight < 0 || p.Max < 0 || p.Rate < 0 || p.Per < 0 || p.Burst < 0 {
		return Ask{}, fmt.Errorf("key %q: a number is negative", p.Key)
	}
	a := Ask{Key: p.Key, Weight: int64(max(p.Weight, 1)), Max: int64(p.Max)}
	if a.Max > 0 && a.Weight > a.Max {
		return Ask{}, fmt.Errorf("key %q: the weight %d exceeds Max %d", p.Key, a.Weight, a.Max)
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
		return Ask{}, fmt.Errorf("key %q: the rate is above 1,000,000 per second", p.Key)
	case a.Weight > burst:
		return Ask{}, fmt.Errorf("key %q: the weight %d exceeds Burst %d", p.Key, a.Weight, burst)
	}
	n := int64(p.Rate)
	a.Interval = (per.Microseconds() + n - 1) / n // rounded up, so that the rate is never exceeded
	a.Slack = burst * a.Interval
	return a, nil
}
