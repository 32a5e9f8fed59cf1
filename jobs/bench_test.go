package jobs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

func benchService(b *testing.B) *jobs.Service {
	b.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), store.Close(context.Background())); err != nil {
			b.Error(err)
		}
	})
	b.ReportAllocs()
	return s
}

// BenchmarkLife creates, claims and finishes a job, with and without waiting.
func BenchmarkLife(b *testing.B) {
	for name, r := range map[string]jobs.Request{
		"name":    {Selector: jobs.Selector{Names: []string{"mail"}}},
		"pattern": {Selector: jobs.Selector{Pattern: "m*"}},
		"waiting": {Selector: jobs.Selector{Names: []string{"mail"}}, Wait: true},
		"leased":  {Selector: jobs.Selector{Names: []string{"mail"}}, Wait: true, Lease: 1 << 40},
	} {
		b.Run(name, func(b *testing.B) {
			s := benchService(b)
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				ctx := context.Background()
				for pb.Next() {
					if _, err := s.Create(ctx, jobs.Spec{Name: "mail", Data: []byte(`{"to":"x"}`)}); err != nil {
						b.Error(err)
					}
					out, err := s.Get(ctx, r)
					if err != nil {
						b.Error(err)
						return
					}
					if err := s.Finish(ctx, jobs.Finish{ID: out[0].ID, Token: out[0].Token}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
