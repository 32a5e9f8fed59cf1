package consumer

import (
	"cmp"
	"errors"
	"fmt"
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
	a.Every = cmp.Or(a.Every, DefaultAutoscaleEvery)
	a.KeepAlive = cmp.Or(a.KeepAlive, DefaultAutoscaleKeepAlive)
	a.MaxLoad = cmp.Or(a.MaxLoad, DefaultAutoscaleMaxLoad)
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
// queues of older versions excepted, see [intake.Autoscaler.Run]. The goroutines end with the
// fetching of their queue.
func (c *Consumer) autoscale(queues []*queue) {
	inspector, _ := capability.As[broker.Inspector](c.cfg.Broker)
	for _, q := range queues {
		a := q.cfg.Autoscale
		if a == nil || q.side() {
			continue
		}
		scaler := &intake.Autoscaler{
			Scaling: intake.Scaling{Min: a.Min, Max: a.Max, KeepAlive: a.KeepAlive, MaxLoad: a.MaxLoad}, Every: a.Every, Queue: q.in, Workers: q.workers,
			Inspector: inspector, Load: a.Load, Scale: func(n int) error { return c.Scale(q.name, n) }, Log: q.log,
		}
		c.loops.Go(func() { scaler.Run(q.fetch) })
	}
}
