package intake

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"

	"github.com/swarmiji/swarmiji/broker"
)

// CheckClaims returns an error if a bound or the floor is not valid, or if there are bounds and the
// queue is not fair.
func CheckClaims(fair bool, b broker.Bounds, floor float64) error {
	if !fair && !b.IsZero() {
		return errors.New("Bounds need Fair")
	}
	return broker.CheckOptions(broker.SubscribeOptions{Bounds: b, Floor: floor})
}

// Bounds returns the bounds of the configuration.
func (q *Queue) Bounds() broker.Bounds { return q.cfg.Bounds }

// SetBounds replaces the bounds by b, at once if the queue is open, else when it subscribes. A Max
// lowers a prefetch that follows the work to the number of workers. If the broker refuses b, that
// is logged, and the bounds of before stay. A queue without Fair refuses all. Returns the errors of
// changing the prefetch. It takes q.control.
func (q *Queue) SetBounds(b broker.Bounds) error {
	q.control.Lock()
	defer q.control.Unlock()
	if reflect.DeepEqual(b, q.wanted) {
		return nil
	}
	q.wanted = b
	if !q.cfg.Queue.Fair {
		if !b.IsZero() {
			q.refused(broker.NotFair(q.cfg.Queue.Name, "bounds"))
		}
		return nil
	}
	if s := q.subscription(); s != nil {
		if err := broker.SetBounds(s, b); err != nil {
			q.refused(err)
			return nil
		}
	}
	q.useBounds(b)
	if q.subscription() == nil {
		q.limitFirst()
		return nil
	}
	if q.workers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
	defer cancel()
	return q.resizePrefetch(ctx, q.workers.Count())
}

// useBounds stores the bounds of the subscription. Call it with q.control held.
func (q *Queue) useBounds(b broker.Bounds) {
	q.bounds = b
	q.bounded.Store(b.HasMax())
}

// limitFirst sets the prefetch of the coming subscription by the bounds. Call it with q.control
// held.
func (q *Queue) limitFirst() {
	workers := q.first
	if q.workers != nil {
		workers = q.workers.Count()
	}
	q.setLimit(q.prefetchOf(workers))
}

// refused logs that bounds that were set while the consumer runs cannot be used.
func (q *Queue) refused(err error) {
	q.cfg.Log(slog.LevelWarn, "the bounds of a setting are not used", slog.Any("error", err))
}

// subscribeWith subscribes with bounds that were set, or else with those of the configuration, if
// the broker refuses the former. Call it with q.control held.
func (q *Queue) subscribeWith(ctx context.Context, o broker.SubscribeOptions) (broker.Subscription, error) {
	o.Bounds = q.bounds
	sub, err := q.cfg.Broker.Subscribe(ctx, q.cfg.Queue.Name, o)
	if err == nil || reflect.DeepEqual(q.bounds, q.cfg.Bounds) || !errors.Is(err, broker.ErrUnsupported) && !errors.Is(err, broker.ErrMalformed) {
		return sub, err
	}
	q.refused(err)
	q.useBounds(q.cfg.Bounds)
	q.limitFirst()
	o.Bounds, o.Prefetch = q.bounds, max(q.Prefetch(), 0)
	return q.cfg.Broker.Subscribe(ctx, q.cfg.Queue.Name, o)
}

// Multiplier returns how many messages a consumer holds for each worker: the number of the queue,
// else the default, else 1 for bounds with a Max. 0: the number follows the work.
func Multiplier(own, def int, b broker.Bounds) int {
	if own = cmp.Or(own, def); own == 0 && b.HasMax() {
		return 1
	}
	return own
}

// prefetchOf returns the prefetch for a number of workers. With a Max a prefetch that may follow
// the work is the number of workers, since the messages that are held count.
func (q *Queue) prefetchOf(workers int) int {
	if q.cfg.Follow && q.bounded.Load() {
		return workers
	}
	return q.cfg.Prefetch(workers)
}
