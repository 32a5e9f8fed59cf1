package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// Defaults of [Autoscale].
const (
	DefaultAutoscaleEvery     = 5 * time.Second
	DefaultAutoscaleKeepAlive = 30 * time.Second
	DefaultAutoscaleMaxLoad   = 0.9
)

// Autoscale adds workers to a queue while tasks wait, and removes workers that were idle for
// KeepAlive.
//
// It starts with QueueConfig.Workers, limited to Min and Max. Consumer.Scale still works; Autoscale
// continues from the new number.
type Autoscale struct {
	Min, Max int // limits of the number of workers, 1 <= Min <= Max
	// Every is the time between two checks of the queue. Default: 5s.
	Every time.Duration
	// KeepAlive is the time for which fewer workers must suffice before some are removed. Default:
	// 30s.
	KeepAlive time.Duration
	// Load returns how busy the machine is, from 0 to 1. Above MaxLoad no workers are added. Default:
	// nil, the load is ignored.
	Load func() float64
	// MaxLoad is the limit for Load. Default: 0.9.
	MaxLoad float64
}

// complete returns a copy of a with its defaults set. The error holds all problems of the
// configuration, joined: limits outside of 1 <= Min <= Max <= MaxWorkers, and negative values.
func (a Autoscale) complete() (*Autoscale, error) {
	setDefault(&a.Every, DefaultAutoscaleEvery)
	setDefault(&a.KeepAlive, DefaultAutoscaleKeepAlive)
	setDefault(&a.MaxLoad, DefaultAutoscaleMaxLoad)
	var errs []error
	if a.Min < 1 || a.Max < a.Min || a.Max > MaxWorkers {
		errs = append(errs, fmt.Errorf("the bounds Min %d and Max %d are invalid; need 1 <= Min <= Max", a.Min, a.Max))
	}
	if a.Every < 0 || a.KeepAlive < 0 || a.MaxLoad < 0 {
		errs = append(errs, fmt.Errorf("a negative value among Every %s, KeepAlive %s, MaxLoad %g", a.Every, a.KeepAlive, a.MaxLoad))
	}
	return &a, errors.Join(errs...)
}

// autoscaleSample holds the numbers that one decision of the autoscaler uses.
type autoscaleSample struct {
	at      time.Time
	workers int // configured number of workers
	active  int // running handlers
	ready   int // tasks that wait for a consumer; negative: unknown
	load    float64
}

// decide returns the number of workers that the queue should have after the sample l, within Min
// and Max. It has no other effect.
//
//   - A number outside of Min and Max, set by Scale, becomes the nearest limit.
//   - If all workers are busy or tasks wait, workers are added, up to twice as many. Above MaxLoad
//     the number stays.
//   - If fewer workers would have been enough for KeepAlive, at most half of them are removed.
//
// idle is the time since which fewer workers would have been enough, or zero. since is the value to
// pass as idle to the next call.
func (a *Autoscale) decide(l autoscaleSample, idle time.Time) (workers int, since time.Time) {
	need := l.active + max(l.ready, 0)
	if l.active >= l.workers { // all workers are busy, so tasks may wait in the prefetch as well
		need = max(need, l.workers+1)
	}
	need = min(max(need, a.Min), a.Max)
	switch {
	case l.workers < a.Min || l.workers > a.Max: // Scale has set a number outside the limits
		return min(max(l.workers, a.Min), a.Max), time.Time{}
	case need > l.workers:
		if l.load > a.MaxLoad {
			return l.workers, time.Time{}
		}
		return min(need, 2*l.workers), time.Time{} // at most double the workers between two samples
	case need == l.workers:
		return l.workers, time.Time{}
	case idle.IsZero():
		return l.workers, l.at
	case l.at.Sub(idle) < a.KeepAlive:
		return l.workers, idle
	}
	return max(need, l.workers/2), time.Time{}
}

// autoscale starts a goroutine for each queue with an Autoscale configuration, side queues of older
// versions excepted. The goroutines end with fetch. wait blocks until all have ended.
func (c *Consumer) autoscale(fetch context.Context, queues []*queue) (wait func()) {
	var wg sync.WaitGroup
	for _, q := range queues {
		if q.cfg.Autoscale != nil && !q.side() {
			wg.Go(func() { q.autoscale(fetch) })
		}
	}
	return wg.Wait
}

// autoscale checks the queue every Autoscale.Every and scales its workers with Consumer.Scale,
// until ctx ends. It blocks until then. While the queue is paused or the broker does not answer, it
// changes nothing. A pause restarts KeepAlive. It logs each change, and each error of Scale before
// the end of ctx.
func (q *queue) autoscale(ctx context.Context) {
	a := q.cfg.Autoscale
	inspector, _ := capability.As[broker.Inspector](q.c.cfg.Broker)
	tick := time.NewTicker(a.Every)
	defer tick.Stop()
	var idle time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if q.in.Paused() {
			idle = time.Time{}
			continue
		}
		l, err := q.sample(ctx, inspector)
		if err != nil {
			continue // the broker is unreachable: the queue logs that
		}
		var n int
		if n, idle = a.decide(l, idle); n == l.workers {
			continue
		}
		if err := q.c.Scale(q.name, n); err != nil && ctx.Err() == nil {
			q.log(slog.LevelWarn, "autoscaling failed", slog.Int("workers", n), slog.Any("error", err))
			continue
		}
		q.log(slog.LevelInfo, "scaled", slog.Int("from", l.workers), slog.Int("workers", n), slog.Int("ready", l.ready))
	}
}

// sampleTimeout limits the read of the waiting tasks of a queue.
const sampleTimeout = 10 * time.Second

// sample reads the number of workers, running handlers (at most the number of workers) and waiting
// tasks of the queue, and calls Autoscale.Load. It returns the error of the broker, also if that
// does not answer within sampleTimeout. With a nil inspector the number of waiting tasks is -1,
// unknown; without Load the load is 0.
func (q *queue) sample(ctx context.Context, inspector broker.Inspector) (autoscaleSample, error) {
	l := autoscaleSample{workers: q.workers.Count(), ready: -1}
	if inspector != nil {
		asking, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		s, err := inspector.Stats(asking, q.source)
		if err != nil {
			return l, err
		}
		l.ready = s.Ready
	}
	l.active = int(min(q.workers.Slots.Used(), int64(l.workers)))
	if load := q.cfg.Autoscale.Load; load != nil {
		l.load = load()
	}
	l.at = time.Now()
	return l, nil
}
