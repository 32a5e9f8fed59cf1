package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
)

// A job sends a request. The answer, from any process, ends the job once.
func ExampleService_Complete() {
	ctx := context.Background()
	store, err := memjobs.New(memjobs.Config{}) // or sqljobs, for SQLite and PostgreSQL
	if err != nil {
		panic(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	created, err := s.Create(ctx, jobs.Spec{Name: "print", Data: []byte(`{"order":17}`)})
	if err != nil {
		panic(err)
	}
	out, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: []string{"print"}}, Lease: time.Minute})
	if err != nil {
		panic(err)
	}
	run := out[0]
	// before sending the request
	if err := s.Expect(ctx, jobs.Expect{ID: run.ID, Token: run.Token, Key: "order-17"}); err != nil {
		panic(err)
	}
	// ... the request is sent ...
	if _, err := s.Await(ctx, jobs.Await{ID: run.ID, Token: run.Token, Timeout: task.Set(48 * time.Hour)}); err != nil {
		panic(err)
	}

	for _, pages := range []int{12, 13} {
		receipt, err := s.Complete(ctx, "print", "order-17", map[string]int{"pages": pages})
		if err != nil {
			panic(err)
		}
		fmt.Println(receipt.Kind, receipt.Job == created.ID)
	}
	j, err := s.Query(ctx, created.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(j.State, string(j.Answer))
	if err := errors.Join(s.Close(ctx), store.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// accepted true
	// duplicate true
	// FINISHED {"pages":12}
}
