package limit

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// MaxHolders is the largest number of holders in a [Usage].
const MaxHolders = 100

// Reader is a [Limiter] that shows how much of a limit is in use.
type Reader interface {
	// Usage returns the use of the limit with this key, by the limiter's clock. An unused
	// limit has the zero Usage. It changes nothing. Returns [ErrUnavailable] if the store did not
	// answer, and ctx's error if ctx has ended.
	Usage(ctx context.Context, key string) (Usage, error)
}

// Usage is the use of a limit.
type Usage struct {
	// Held is the total weight that all holders hold.
	Held int
	// Holders are those holders whose leases end first, at most [MaxHolders].
	Holders []Holder
	// Ahead is the time for which the rate is used in advance. 0: a rate does not delay the next
	// start. See [Ask.Wait].
	Ahead time.Duration
}

// Holder is a holder of a limit.
type Holder struct {
	// Name is the holder in the call of Acquire. A name from [Admit] begins with the id of the task
	// and a slash.
	Name   string
	Weight int
	// Lease is the time until the lease ends, unless it is renewed.
	Lease time.Duration
}

// Wait returns the time until the rate admits a, if the rate is used in advance for the time ahead,
// as [Usage.Ahead] reports. It returns 0 if a may start at once or has no rate.
func (a *Ask) Wait(ahead time.Duration) time.Duration {
	if a.Interval == 0 {
		return 0
	}
	return max(0, ahead+time.Duration(a.Weight*a.Interval-a.Slack)*time.Microsecond)
}

var _ Reader = (*Memory)(nil)

// Usage implements [Reader]: it removes the ended leases of the limit key and returns its use.
// Returns ctx's error if ctx has ended. It takes m.mu.
func (m *Memory) Usage(ctx context.Context, key string) (Usage, error) {
	if err := ctx.Err(); err != nil {
		return Usage{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[key]
	if k == nil {
		return Usage{}, nil
	}
	now := time.Now().UnixMicro()
	k.expire(now)
	u := Usage{Held: int(k.sum), Ahead: time.Duration(max(0, k.full-now)) * time.Microsecond}
	for name, h := range k.held {
		u.Holders = append(u.Holders, Holder{Name: name, Weight: int(h.weight), Lease: time.Duration(h.until-now) * time.Microsecond})
	}
	slices.SortFunc(u.Holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.Lease, b.Lease), cmp.Compare(a.Name, b.Name)) })
	u.Holders = u.Holders[:min(len(u.Holders), MaxHolders)]
	return u, nil
}
