package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/open"
)

// rateReport is the line that rates prints for a side. Times are microseconds of a message, medians
// of the rounds. A ratio is the median of the ratios within a round, base to side: above 1 the side
// is faster, or costs less.
type rateReport struct {
	Broker   string  `json:"broker"`
	Side     string  `json:"side"`
	N        int     `json:"n"`
	Rounds   int     `json:"rounds"`
	Store    float64 `json:"store_us"`
	Drain    float64 `json:"drain_us"`
	CPU      float64 `json:"cpu_us"`
	OfStore  float64 `json:"store_ratio"`
	OfDrain  float64 `json:"drain_ratio"`
	Of       float64 `json:"ratio"`     // of both together
	OfCPU    float64 `json:"cpu_ratio"` // of both together
	DrainCPU float64 `json:"drain_cpu_ratio"`
	Load     string  `json:"load"`
}

// side is one kind of queue, and the measurements of each round in seconds.
type side struct {
	name                        string
	keys                        int // 0: a plain queue
	bounds                      broker.Bounds
	stored, drained             []float64
	storedCPU, drainedCPU, both []float64
}

// parseSides returns the sides of the flag.
func parseSides(list string) ([]*side, error) {
	var all []*side
	for name := range strings.SplitSeq(list, ",") {
		s := &side{name: name}
		if name != "plain" {
			number, bounded := strings.CutSuffix(name, "b")
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("the side %q is not plain, a number of keys, or that with b", name)
			}
			if s.keys = n; bounded {
				s.bounds.Key.Max = 10_000
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func rates(ctx context.Context, cfg *config) (err error) {
	sides, err := parseSides(cfg.sides)
	if err != nil {
		return err
	}
	c := &connections{url: cfg.broker}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	var swarms []*open.Swarm
	for range cfg.consumers {
		s, err := c.open(ctx)
		if err != nil {
			return err
		}
		swarms = append(swarms, s)
	}
	before := load()
	for round := range cfg.rounds + 1 { // the first one warms up
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			if err := s.measure(ctx, swarms, cfg.n, round); err != nil {
				return fmt.Errorf("side %s: %w", s.name, err)
			}
		}
	}
	name, _, _ := strings.Cut(cfg.broker, ":")
	for _, s := range sides {
		r := s.report(sides[0], cfg.n)
		r.Broker, r.Load = name, before+" to "+load()
		if err := printed(r); err != nil {
			return err
		}
	}
	return nil
}

// report compares the side with the base.
func (s *side) report(base *side, n int) rateReport {
	each := func(seconds []float64) float64 { return part(append([]float64{}, seconds...), 0.5) * 1e6 / float64(n) }
	ratio := func(of func(s *side, i int) float64) float64 {
		var all []float64
		for i := range s.stored {
			all = append(all, of(base, i)/of(s, i))
		}
		return part(all, 0.5)
	}
	return rateReport{
		Side: s.name, N: n, Rounds: len(s.stored), Store: each(s.stored), Drain: each(s.drained), CPU: each(s.both),
		OfStore:  ratio(func(s *side, i int) float64 { return s.stored[i] }),
		OfDrain:  ratio(func(s *side, i int) float64 { return s.drained[i] }),
		Of:       ratio(func(s *side, i int) float64 { return s.stored[i] + s.drained[i] }),
		OfCPU:    ratio(func(s *side, i int) float64 { return s.both[i] }),
		DrainCPU: ratio(func(s *side, i int) float64 { return s.drainedCPU[i] }),
	}
}

// measure stores n messages in a new queue and drains it. Round 0 is not recorded.
func (s *side) measure(ctx context.Context, swarms []*open.Swarm, n, round int) error {
	queue := fmt.Sprintf("fair-%s-%d", s.name, round)
	if err := broker.Declare(ctx, swarms[0].Broker, broker.Queue{Name: queue, Fair: s.keys > 0}); err != nil {
		return err
	}
	begun, cpu := time.Now(), processorTime()
	if err := s.store(ctx, swarms[0].Broker, queue, n); err != nil {
		return err
	}
	stored, storedCPU := time.Since(begun).Seconds(), (processorTime() - cpu).Seconds()
	begun, cpu = time.Now(), processorTime()
	if err := s.drain(ctx, swarms, queue, n); err != nil {
		return err
	}
	drained, drainedCPU := time.Since(begun).Seconds(), (processorTime() - cpu).Seconds()
	if round > 0 {
		s.stored, s.drained = append(s.stored, stored), append(s.drained, drained)
		s.storedCPU, s.drainedCPU = append(s.storedCPU, storedCPU), append(s.drainedCPU, drainedCPU)
		s.both = append(s.both, storedCPU+drainedCPU)
	}
	return nil
}

// store stores n messages in the queue by four goroutines.
func (s *side) store(ctx context.Context, b broker.Broker, queue string, n int) error {
	const atOnce, writers = 500, 4
	var all sync.WaitGroup
	var errs [writers]error
	for w := range writers {
		all.Go(func() {
			for at := w * atOnce; at < n && errs[w] == nil; at += writers * atOnce {
				batch := make([]broker.Outgoing, min(atOnce, n-at))
				for i := range batch {
					m := &broker.Message{
						ID: fmt.Sprintf("0192a6c5-7d1e-7aaa-8000-%012d", at+i), Priority: 100, Body: make([]byte, 200), ContentType: "application/json",
					}
					if s.keys > 0 {
						m.Key = "customer " + strconv.Itoa((at+i)*7919%s.keys)
					}
					batch[i] = broker.Outgoing{Queue: queue, Message: m}
				}
				errs[w] = broker.PublishBatch(ctx, b, batch)
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// drain receives and acknowledges n messages, by a subscription of each swarm.
func (s *side) drain(ctx context.Context, swarms []*open.Swarm, queue string, n int) error {
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var got atomic.Int64
	errs := make([]error, len(swarms))
	for i, swarm := range swarms {
		all.Go(func() {
			sub, err := swarm.Broker.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: 256, Bounds: s.bounds})
			if err != nil {
				errs[i] = err
				stop()
				return
			}
			for {
				d, err := sub.Receive(receiving)
				if err == nil {
					err = d.Ack(ctx)
				}
				if err != nil {
					if receiving.Err() == nil {
						errs[i] = err
						stop()
					}
					break
				}
				if got.Add(1) >= int64(n) {
					stop()
				}
			}
			errs[i] = errors.Join(errs[i], sub.Close(ctx))
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
