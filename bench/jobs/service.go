package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/jobs"
)

// ours calls the Service as a program does.
type ours struct{ s *jobs.Service }

func (o ours) create(ctx context.Context) error {
	_, err := o.s.Create(ctx, jobs.Spec{Name: workName, Data: []byte(workData)})
	return err
}

func (o ours) pair(ctx context.Context) error {
	got, err := o.s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: []string{workName}}})
	if err != nil {
		return err
	}
	return o.s.Finish(ctx, jobs.Finish{ID: got[0].ID, Token: got[0].Token})
}

// Direct holds the speed of jobs without the line protocol, and that of the bare database client.
type Direct struct {
	Create, Pair       cost    // medians
	RawCreate, RawPair cost    // PostgreSQL only
	CreateRatio        float64 // medians of the rounds' ratios
	PairRatio          float64
}

// direct measures the Service and, with PostgreSQL, the bare client in turns.
func direct(ctx context.Context, s *jobs.Service, url string, n, clients, rounds int) (Direct, error) {
	type side interface {
		create(ctx context.Context) error
		pair(ctx context.Context) error
	}
	sides := []side{ours{s}}
	if strings.HasPrefix(url, "postgres") {
		r, err := openRaw(ctx, url)
		if err != nil {
			return Direct{}, err
		}
		defer r.close()
		sides = append(sides, r)
	}
	for _, one := range sides { // the first call creates the tables
		if err := errors.Join(one.create(ctx), one.pair(ctx)); err != nil {
			return Direct{}, fmt.Errorf("the first job: %w", err)
		}
	}
	creates, pairs := make([][]cost, len(sides)), make([][]cost, len(sides))
	for round := range rounds {
		for i := range sides {
			k := (i + round) % len(sides)
			c, err := parallel(n, clients, func(int) error { return sides[k].create(ctx) })
			if err != nil {
				return Direct{}, fmt.Errorf("create: %w", err)
			}
			p, err := parallel(n, clients, func(int) error { return sides[k].pair(ctx) })
			if err != nil {
				return Direct{}, fmt.Errorf("get and finish: %w", err)
			}
			creates[k], pairs[k] = append(creates[k], c), append(pairs[k], p)
		}
	}
	d := Direct{Create: medianCost(creates[0]), Pair: medianCost(pairs[0])}
	if len(sides) > 1 {
		d.RawCreate, d.RawPair = medianCost(creates[1]), medianCost(pairs[1])
		d.CreateRatio, d.PairRatio = median(ratios(creates[0], creates[1])), median(ratios(pairs[0], pairs[1]))
	}
	return d, nil
}

func ratios(a, b []cost) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i].Rate / b[i].Rate
	}
	return r
}
