package consumer

import (
	"context"
	"sync"

	"golang.org/x/time/rate"

	"github.com/swarmiji/swarmiji/task"
)

// rates holds a token bucket for each task name that has a rate limit. The bucket holds what one second gives, at least
// one token.
type rates struct {
	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	limit   string // as the metadata said when the bucket was made or last changed
	limiter *rate.Limiter
}

// admit waits until the task's rate limit lets it start. False: the consumer stops, and the task was not started.
func (q *queue) admit(r *run) bool {
	limit := r.request.Effective.RateLimit.Or("")
	if limit == "" {
		return true
	}
	limiter := q.c.rates.limiter(r.request.Name, limit)
	if limiter == nil {
		return true
	}
	ctx, cancel := context.WithCancel(q.fetch)
	defer cancel()
	defer context.AfterFunc(q.leases.acquire(q.c.work, r.lost()), cancel)()
	defer q.leases.release(r.lost())
	return limiter.Wait(ctx) == nil
}

// limiter returns the bucket of a task name, changed to a limit that is new. nil: the limit cannot be read, which the
// producer would have refused; a foreign writer's is ignored.
func (rs *rates) limiter(name, limit string) *rate.Limiter {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if b, ok := rs.buckets[name]; ok && b.limit == limit {
		return b.limiter
	}
	n, per, err := task.ParseRate(limit)
	if err != nil || n == 0 {
		return nil
	}
	if rs.buckets == nil {
		rs.buckets = make(map[string]*bucket)
	}
	perSecond := rate.Limit(float64(n) / per.Seconds())
	burst := max(1, int(perSecond))
	b, ok := rs.buckets[name]
	if !ok {
		b = &bucket{limiter: rate.NewLimiter(perSecond, burst)}
		rs.buckets[name] = b
	}
	b.limit = limit // a new limit does not fill the bucket again
	b.limiter.SetLimit(perSecond)
	b.limiter.SetBurst(burst)
	return b.limiter
}
