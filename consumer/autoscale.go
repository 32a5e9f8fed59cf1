package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
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
	// Load returns how busy the machine is, from 0 to 1. Above MaxLoad no workers are added.
	// Default: nil, the load is ignored.
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

// autoscale starts a goroutine in c.loops for each queue with an Autoscale configuration, side
// queues of older versions excepted. The goroutines end with the fetching of their queue.
func (c *Consumer) autoscale(queues []*queue) {
	for _, q := range queues {
		if q.cfg.Autoscale != nil && !q.side() {
			c.loops.Go(func() { q.autoscale(q.fetch) })
		}
	}
}

// autoscale checks the queue every Autoscale.Every and scales its workers with Consumer.Scale,
// until ctx ends. It blocks until then. While the queue is paused, its workers are limited by a
// setting, or the broker does not answer, it changes nothing. A pause restarts KeepAlive. It logs each change, and each error of Scale before
// the end of ctx.
func (q *queue) autoscale(ctx context.Context) {
	a := q.cfg.Autoscale
	scaling := intake.Scaling{Min: a.Min, Max: a.Max, KeepAlive: a.KeepAlive, MaxLoad: a.MaxLoad}
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
		if q.in.Paused() || q.workers.Limited() {
			idle = time.Time{}
			continue
		}
		l, err := q.sample(ctx, inspector)
		if err != nil {
			continue // the broker is unreachable: the queue logs that
		}
		var n int
		if n, idle = scaling.Decide(l, idle); n == l.Workers {
			continue
		}
		if err := q.c.Scale(q.name, n); err != nil && ctx.Err() == nil {
			q.log(slog.LevelWarn, "autoscaling failed", slog.Int("workers", n), slog.Any("error", err))
			continue
		}
		q.log(slog.LevelInfo, "scaled", slog.Int("from", l.Workers), slog.Int("workers", n), slog.Int("ready", l.Ready))
	}
}

// sampleTimeout limits the read of the waiting tasks of a queue.
const sampleTimeout = 10 * time.Second

// sample reads the number of workers, running handlers (at most the number of workers) and waiting
// tasks of the queue, and calls Autoscale.Load. It returns the error of the broker, also if that
// does not answer within sampleTimeout. With a nil inspector the number of waiting tasks is -1,
// unknown; without Load the load is 0.
func (q *queue) sample(ctx context.Context, inspector broker.Inspector) (intake.Sample, error) {
	l := intake.Sample{Workers: q.workers.Count(), Ready: -1}
	if inspector != nil {
		asking, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		s, err := inspector.Stats(asking, q.source)
		if err != nil {
			return l, err
		}
		l.Ready = s.Ready
	}
	l.Active = int(min(q.workers.Slots.Used(), int64(l.Workers)))
	if load := q.cfg.Autoscale.Load; load != nil {
		l.Load = load()
	}
	l.At = time.Now()
	return l, nil
}
