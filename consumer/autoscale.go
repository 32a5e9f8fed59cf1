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

// Defaults of an [Autoscale].
const (
	DefaultAutoscaleEvery     = 5 * time.Second
	DefaultAutoscaleKeepAlive = 30 * time.Second
	DefaultAutoscaleMaxLoad   = 0.9
)

// Autoscale has a queue get more workers while tasks wait, and fewer when they have had nothing to do for a while. It starts with
// QueueConfig.Workers, as far as that lies between Min and Max, and from then on Scale is its own.
type Autoscale struct {
	Min, Max int // 1 <= Min <= Max
	// Every is the time between two looks at the queue. 0: 5 s.
	Every time.Duration
	// KeepAlive is how long fewer workers must have been enough before some leave. 0: 30 s.
	KeepAlive time.Duration
	// Load tells how busy the machine is, 0 to 1: above MaxLoad no workers are added. nil: that is not looked at.
	Load func() float64
	// MaxLoad is for Load. 0: 0.9.
	MaxLoad float64
}

func (a Autoscale) complete() (*Autoscale, error) {
	setDefault(&a.Every, DefaultAutoscaleEvery)
	setDefault(&a.KeepAlive, DefaultAutoscaleKeepAlive)
	setDefault(&a.MaxLoad, DefaultAutoscaleMaxLoad)
	var errs []error
	if a.Min < 1 || a.Max < a.Min || a.Max > MaxWorkers {
		errs = append(errs, fmt.Errorf("from %d to %d workers", a.Min, a.Max))
	}
	if a.Every < 0 || a.KeepAlive < 0 || a.MaxLoad < 0 {
		errs = append(errs, fmt.Errorf("every %s, keep alive %s, load %g", a.Every, a.KeepAlive, a.MaxLoad))
	}
	return &a, errors.Join(errs...)
}

// look is what the autoscaler knows at a moment.
type look struct {
	at      time.Time
	workers int // there are to be
	active  int // handlers that run
	ready   int // tasks that wait for a consumer; negative: unknown
	load    float64
}

// decide returns how many workers there are to be, and since when fewer would be enough, which it is given back the next time.
func (a *Autoscale) decide(l look, idle time.Time) (workers int, since time.Time) {
	need := l.active + max(l.ready, 0)
	if l.active >= l.workers { // all are busy: what waits in the prefetch is not known
		need = max(need, l.workers+1)
	}
	need = min(max(need, a.Min), a.Max)
	switch {
	case l.workers < a.Min || l.workers > a.Max: // somebody else has scaled it
		return min(max(l.workers, a.Min), a.Max), time.Time{}
	case need > l.workers:
		if l.load > a.MaxLoad {
			return l.workers, time.Time{}
		}
		return min(need, 2*l.workers), time.Time{} // twice at most: the next look knows more
	case need == l.workers:
		return l.workers, time.Time{}
	case idle.IsZero():
		return l.workers, l.at
	case l.at.Sub(idle) < a.KeepAlive:
		return l.workers, idle
	}
	return max(need, l.workers/2), time.Time{}
}

// autoscale scales the queues that ask for it until the function that it returns has returned. fetch ends it.
func (c *Consumer) autoscale(fetch context.Context, queues []*queue) (wait func()) {
	var wg sync.WaitGroup
	for _, q := range queues {
		if q.cfg.Autoscale != nil && !q.side() {
			wg.Go(func() { q.autoscale(fetch) })
		}
	}
	return wg.Wait
}

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
		if q.gate.shut.Load() {
			idle = time.Time{}
			continue
		}
		l, err := q.look(ctx, inspector)
		if err != nil {
			continue // the broker is away: Run says so
		}
		var n int
		if n, idle = a.decide(l, idle); n == l.workers {
			continue
		}
		if err := q.c.Scale(q.name, n); err != nil && ctx.Err() == nil {
			q.log(slog.LevelWarn, "cannot scale", slog.Int("workers", n), slog.Any("error", err))
			continue
		}
		q.log(slog.LevelInfo, "scaled", slog.Int("from", l.workers), slog.Int("workers", n), slog.Int("ready", l.ready))
	}
}

// look looks at the queue and at what its workers do.
func (q *queue) look(ctx context.Context, inspector broker.Inspector) (look, error) {
	l := look{workers: q.team.workers(), ready: -1}
	if inspector != nil {
		asking, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		s, err := inspector.Stats(asking, q.source)
		if err != nil {
			return l, err
		}
		l.ready = s.Ready
	}
	l.active = int(min(q.team.slots.Used(), int64(l.workers)))
	if load := q.cfg.Autoscale.Load; load != nil {
		l.load = load()
	}
	l.at = time.Now()
	return l, nil
}
