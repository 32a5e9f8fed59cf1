package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

const (
	names     = 1000 // number of different names
	perInsert = 2000 // rows
)

// priorities holds Bedrock's six priorities.
var priorities = []int{1000, 750, 500, 250, 150, 0}

// fill creates n rows with alternating names and priorities. Every second row is due only in a
// year.
func fill(ctx context.Context, s *jobs.Service, n int) error {
	year := time.Now().Add(365 * 24 * time.Hour)
	for from := 0; from < n; from += perInsert {
		specs := make([]jobs.Spec, min(perInsert, n-from))
		for i := range specs {
			k := from + i
			specs[i] = jobs.Spec{
				Name: fmt.Sprintf("group%02d/job%d", k%names/20, k%names), Data: []byte(workData),
				Priority: task.Set(priorities[k/names%len(priorities)]),
			}
			if k/names/len(priorities)%2 == 1 {
				specs[i].FirstRun = year
			}
		}
		if _, err := s.CreateAll(ctx, specs); err != nil {
			return err
		}
	}
	return nil
}

// patterns holds the ways to ask for a job.
var patterns = []struct{ name, pattern string }{
	{"exact", "group07/job142"},
	{"prefix*", "group07/*"},
	{"*suffix", "*job142"},
	{"*", "*"},
	{"none", "nobody*here"},
}

// look returns the time of each pattern in microseconds, as the median of n sequential
// measurements. Each job is claimed and released, so that the rows stay unchanged.
func look(ctx context.Context, s *jobs.Service, n int) (map[string]float64, error) {
	took := make(map[string]float64)
	for _, p := range patterns {
		times := make([]float64, 0, n)
		for range n {
			began := time.Now()
			got, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: p.pattern}})
			times = append(times, float64(time.Since(began).Microseconds()))
			switch {
			case errors.Is(err, jobs.ErrNoJob) && p.name == "none":
			case err != nil:
				return nil, fmt.Errorf("%s: %w", p.name, err)
			default:
				if err := s.GiveBack(ctx, got[0]); err != nil {
					return nil, fmt.Errorf("%s: give back: %w", p.name, err)
				}
			}
		}
		took[p.name] = median(times)
	}
	return took, nil
}
