package main

import (
	"context"
	"math"
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

// parallel calls fn n times from several goroutines, with the goroutine's number. It returns the
// number of calls per second.
func parallel(n, workers int, fn func(worker int) error) (float64, error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, workers)
	began := time.Now()
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
	took := time.Since(began)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(n) / took.Seconds(), nil
	}
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
