package main

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// workName and workData are the name and the data of the measured job.
const (
	workName = "www-prod/SendEmail"
	workData = `{"value":1,"to":"somebody@example.org"}`
)

// cost holds the figures of one kind of call.
type cost struct {
	Rate   float64 // calls per second
	CPU    float64 // processor time of this process per call, in microseconds
	Allocs float64 // allocations per call
}

// parallel calls fn n times from several goroutines, with the goroutine's number, and measures it.
func parallel(n, workers int, fn func(worker int) error) (cost, error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	errs := make(chan error, workers)
	runtime.ReadMemStats(&before)
	began, cpu := time.Now(), processCPU()
	for w := range workers {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := fn(w); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took, used := time.Since(began), processCPU()-cpu
	runtime.ReadMemStats(&after)
	select {
	case err := <-errs:
		return cost{}, err
	default:
		return cost{
			Rate: float64(n) / took.Seconds(), CPU: used.Seconds() * 1e6 / float64(n), Allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		}, nil
	}
}

// medianCost returns the median of each figure.
func medianCost(costs []cost) cost {
	of := func(figure func(cost) float64) float64 {
		values := make([]float64, len(costs))
		for i, c := range costs {
			values[i] = figure(c)
		}
		return median(values)
	}
	return cost{of(func(c cost) float64 { return c.Rate }), of(func(c cost) float64 { return c.CPU }), of(func(c cost) float64 { return c.Allocs })}
}

func median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	return s[len(s)/2]
}

// percentile returns a percentile of durations in milliseconds.
func percentile(d []time.Duration, p float64) float64 {
	s := slices.Clone(d)
	slices.Sort(s)
	i := min(len(s)-1, int(math.Ceil(p*float64(len(s))))-1)
	return float64(s[i]) / float64(time.Millisecond)
}

func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
