package limit

import (
	"context"
	"sync"
	"time"
)

// Memory is a [Limiter] for one process. Make one with [NewMemory].
type Memory struct {
	mu    sync.Mutex
	keys  map[string]*memoryKey
	sweep time.Time // when unused keys were last removed
}

// memoryKey is the state of one limit.
type memoryKey struct {
	held map[string]memoryHold
	sum  int64
	full int64 // time up to which the rate is used, in microseconds
}

// memoryHold is the permit of one holder, with the end of its lease.
type memoryHold struct {
	weight int64
	until  int64 // microseconds
}

// NewMemory returns a limiter that stores its limits in memory. They apply to this process only,
// and are lost when it ends. It starts nothing and needs no Close.
func NewMemory() *Memory { return &Memory{keys: make(map[string]*memoryKey)} }

var _ Limiter = (*Memory)(nil)

// Acquire implements [Limiter]: it grants all permits to holder, or none, and does not wait.
// Without permits it grants. Returns [ErrBadPermit] for invalid arguments, and ctx's error if ctx
// has ended; then it changes nothing. At most once a minute it also removes ended leases and unused
// limits. It takes m.mu.
func (m *Memory) Acquire(ctx context.Context, holder string, lease time.Duration, ps ...Permit) (Decision, error) {
	asks, err := Check(holder, lease, ps)
	if err != nil {
		return Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Now()
	now := at.UnixMicro()
	m.clean(at)
	granted, wait := true, int64(0)
	for _, a := range asks {
		ok, after := m.key(a.Key).fits(a, holder, now)
		granted, wait = granted && ok, max(wait, after)
	}
	if !granted {
		return Decision{RetryAfter: time.Duration(wait) * time.Microsecond}, nil
	}
	for _, a := range asks {
		m.key(a.Key).take(a, holder, now, now+lease.Microseconds())
	}
	return Decision{Granted: true}, nil
}

// Renew implements [Limiter]: it makes the leases of the permits with a Max end after lease from
// now. Returns [ErrLost], and changes no lease, if the holder does not hold one of these permits or
// its lease has ended. Returns [ErrBadPermit] for invalid arguments, and ctx's error if ctx has
// ended. It takes m.mu.
func (m *Memory) Renew(ctx context.Context, holder string, lease time.Duration, ps ...Permit) error {
	asks, err := Check(holder, lease, ps)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()
	for _, a := range asks {
		if h, ok := m.key(a.Key).held[holder]; a.Max > 0 && (!ok || h.until <= now) {
			return ErrLost
		}
	}
	for _, a := range asks {
		if a.Max > 0 {
			k := m.key(a.Key)
			k.held[holder] = memoryHold{k.held[holder].weight, now + lease.Microseconds()}
		}
	}
	return nil
}

// Release implements [Limiter]: it removes holder and its weight from the permits that it holds.
// Returns [ErrBadPermit] for invalid arguments, and ctx's error if ctx has ended; then it releases
// nothing. It takes m.mu.
func (m *Memory) Release(ctx context.Context, holder string, ps ...Permit) error {
	asks, err := Check(holder, MinLease, ps)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range asks {
		m.key(a.Key).drop(holder)
	}
	return nil
}

// key returns the state of the limit with this name, and adds an empty one if it is missing. Call
// it with m.mu held.
func (m *Memory) key(name string) *memoryKey {
	k := m.keys[name]
	if k == nil {
		k = &memoryKey{held: make(map[string]memoryHold)}
		m.keys[name] = k
	}
	return k
}

// sweepEvery is the interval for removing unused keys.
const sweepEvery = time.Minute

// clean removes ended leases, and limits without a holder whose rate is not in use. It does so at
// most once in sweepEvery. Call it with m.mu held.
func (m *Memory) clean(now time.Time) {
	if now.Sub(m.sweep) < sweepEvery {
		return
	}
	m.sweep = now
	for name, k := range m.keys {
		k.expire(now.UnixMicro())
		if len(k.held) == 0 && k.full <= now.UnixMicro() {
			delete(m.keys, name)
		}
	}
}

// fits reports whether a can be granted to holder at the time now, after it has removed ended
// leases. It grants nothing. A permit that holder holds already fits. If the rate refuses a, after
// is the minimum wait in microseconds, else 0. Call it with Memory.mu held.
func (k *memoryKey) fits(a Ask, holder string, now int64) (ok bool, after int64) {
	k.expire(now)
	if _, again := k.held[holder]; again && a.Max > 0 {
		return true, 0
	}
	if a.Interval > 0 {
		after = max(0, max(k.full, now)+a.Weight*a.Interval-now-a.Slack)
	}
	return after == 0 && (a.Max == 0 || k.sum+a.Weight <= a.Max), after
}

// take grants a to holder until the time until. If holder holds the permit already, it only gets
// the new lease. Otherwise the weight is held, if a has a Max, and counted for the rate. Call it
// with Memory.mu held.
func (k *memoryKey) take(a Ask, holder string, now, until int64) {
	if a.Max > 0 {
		if h, again := k.held[holder]; again {
			k.held[holder] = memoryHold{h.weight, until}
			return
		}
		k.held[holder] = memoryHold{a.Weight, until}
		k.sum += a.Weight
	}
	if a.Interval > 0 {
		k.full = max(k.full, now) + a.Weight*a.Interval
	}
}

// expire removes the holders whose lease has ended at now. Call it with Memory.mu held.
func (k *memoryKey) expire(now int64) {
	for holder, h := range k.held {
		if h.until <= now {
			k.drop(holder)
		}
	}
}

// drop removes a holder and its weight. It does nothing for an unknown holder. Call it with
// Memory.mu held.
func (k *memoryKey) drop(holder string) {
	k.sum -= k.held[holder].weight
	delete(k.held, holder)
}
