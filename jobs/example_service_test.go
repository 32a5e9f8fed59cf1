package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// A job that repeats passes its data from one run to the next.
func ExampleService() {
	ctx := context.Background()
	store, err := memjobs.New(memjobs.Config{}) // or sqljobs, for SQLite and PostgreSQL
	if err != nil {
		panic(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	created, err := s.Create(ctx, jobs.Spec{Name: "feed", Data: []byte(`{"last":0}`), Repeat: "FINISHED, +1 HOUR"})
	if err != nil {
		panic(err)
	}

	// A worker waits for due jobs, reports its progress, and stores its position for the next run.
	out, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "f*"}, Lease: time.Minute, Wait: true})
	if err != nil {
		panic(err)
	}
	j := out[0]
	fmt.Println(j.ID == created.ID, j.Name, j.State, string(j.Data))
	err = s.Update(ctx, jobs.Update{ID: j.ID, Token: j.Token, Data: []byte(`{"last":40,"percent":80}`)})
	if err != nil {
		panic(err)
	}
	now, err := s.Query(ctx, j.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(now.State, string(now.Data))
	err = s.Finish(ctx, jobs.Finish{ID: j.ID, Token: j.Token, Data: []byte(`{"last":50}`)})
	if err != nil {
		panic(err)
	}

	// The job is QUEUED for its next run.
	now, err = s.Query(ctx, j.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(now.State, string(now.Data), now.NextRun.Sub(now.Changed).Round(time.Second))
	_, err = s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: []string{"feed"}}})
	fmt.Println(errors.Is(err, jobs.ErrNoJob))
	if err := errors.Join(s.Close(ctx), store.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// true feed RUNNING {"last":0}
	// RUNNING {"last":40,"percent":80}
	// QUEUED {"last":50} 1h0m0s
	// true
}

// Jobs of one sequence key run one at a time.
func ExampleSpec_sequenceKey() {
	ctx := context.Background()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		panic(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	_, err = s.CreateAll(ctx, []jobs.Spec{
		{Name: "bill", SequenceKey: "customer-7", Data: []byte(`{"month":1}`)},
		{Name: "bill", SequenceKey: "customer-7", Data: []byte(`{"month":2}`)},
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		out, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: []string{"bill"}}, Max: 10})
		if err != nil {
			panic(err)
		}
		fmt.Println(len(out), string(out[0].Data))
		if err := s.Finish(ctx, jobs.Finish{ID: out[0].ID}); err != nil {
			panic(err)
		}
	}
	if err := errors.Join(s.Close(ctx), store.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// 1 {"month":1}
	// 1 {"month":2}
}
