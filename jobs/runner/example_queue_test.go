package runner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// The limit of a queue bounds the weight of the running jobs. Here a report uses three quarters of
// it, so the second report waits for the first.
func Example_queue() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store, err := memjobs.New(memjobs.Config{}) // or sqljobs, for SQLite and PostgreSQL
	if err != nil {
		panic(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	for _, spec := range []jobs.Spec{
		{Name: "report", Weight: task.Set(3.0), Data: []byte(`{"of":"May"}`)},
		{Name: "report", Weight: task.Set(3.0), Data: []byte(`{"of":"June"}`)},
		{Name: "thumbnail"},
	} {
		spec.Queue = "office"
		if _, err := s.Create(ctx, spec); err != nil {
			panic(err)
		}
	}
	r, err := runner.New(runner.Config{Service: s, Queue: &queue.Queue{Name: "office", Limit: 4}, Workers: 10})
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	running, done := map[string]bool{}, 0
	begin := func(what string) (alone bool) {
		mu.Lock()
		defer mu.Unlock()
		running[what] = true
		return len(running) == 1
	}
	end := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		delete(running, what)
		if done++; done == 3 {
			stop()
		}
	}
	report := task.New[struct{ Of string }, task.None]("report")
	thumbnail := task.New[task.None, task.None]("thumbnail")
	err = errors.Join(
		report.Handle(r, func(_ context.Context, d struct{ Of string }) (task.None, error) {
			fmt.Println(d.Of, "alone:", begin(d.Of))
			time.Sleep(20 * time.Millisecond)
			end(d.Of)
			return task.None{}, nil
		}),
		thumbnail.Handle(r, func(context.Context, task.None) (task.None, error) {
			end("thumbnail")
			return task.None{}, nil
		}),
		r.Run(ctx),
	)
	fmt.Println(err)
	// Output:
	// May alone: true
	// June alone: true
	// <nil>
}

// Of 100 jobs at a time, 40 may belong to the east, 30 to the west and 30 to the north. This holds
// even if the other regions have no jobs.
func Example_shares() {
	region := func(j jobs.Job) string { return j.Name }
	named := queue.Queue{Name: "calls", Limit: 100, Throttler: queue.Shares(region, map[string]float64{"east": 40, "west": 30, "north": 30})}

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		panic(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	for name, n := range map[string]int{"east": 60, "north": 5} {
		if _, err := s.CreateAll(ctx, slices.Repeat([]jobs.Spec{{Name: name, Queue: "calls"}}, n)); err != nil {
			panic(err)
		}
	}
	r, err := runner.New(runner.Config{Service: s, Queue: &named, Workers: 200})
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	count := map[string]int{}
	handler := func(run context.Context, _ task.None) (task.None, error) {
		q, _ := task.FromContext(run)
		mu.Lock()
		count[q.Name]++
		all := count["east"]+count["north"] == 45
		mu.Unlock()
		if all {
			time.AfterFunc(50*time.Millisecond, func() { // no other job comes
				mu.Lock()
				defer mu.Unlock()
				fmt.Println(count)
				stop()
			})
		}
		<-ctx.Done()
		return task.None{}, nil
	}
	for name := range map[string]bool{"east": true, "north": true} {
		if err := task.New[task.None, task.None](name).Handle(r, handler); err != nil {
			panic(err)
		}
	}
	if err := r.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// map[east:40 north:5]
}

// Explain returns why a job does not run.
func Example_explain() {
	ctx := context.Background()
	store, err := memjobs.New(memjobs.Config{Now: func() time.Time { return time.Date(2026, 5, 4, 20, 0, 0, 0, time.UTC) }})
	if err != nil {
		panic(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	office, err := when.ParseWindows("Mon-Fri 09:00-17:00", time.UTC)
	if err != nil {
		panic(err)
	}
	made, err := s.CreateAll(ctx, []jobs.Spec{
		{Name: "call", Queue: "calls", Windows: office},
		{Name: "call", Queue: "calls"},
		{Name: "import", SequenceKey: "c7"},
		{Name: "import", SequenceKey: "c7"},
	})
	if err != nil {
		panic(err)
	}
	for _, m := range made {
		e, err := s.Explain(ctx, m.ID)
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Reasons[0].Kind, "-", e)
	}
	// Output:
	// window - Its window opens at 2026-05-05 09:00:00 UTC.
	// no runner - No runner has ever served queue "calls".
	// due - It has been due since 2026-05-04 20:00:00 UTC, and no free worker runs "import".
	// sequence - It waits for job 3 of sequence key "c7", which is QUEUED for 2026-05-04 20:00:00 UTC.
}
