package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
)

// AnswersReport is the line that -answers prints.
type AnswersReport struct {
	Store      string
	N          int
	Clients    int
	InFlight   int     // configured number of jobs that were created and have not ended
	Awaited    int     // maximum number of awaited answers
	Respond    bool    // a function checked each answer
	Rate       float64 // jobs per second through create, request, answer and end
	Goroutines int     // maximum in this program
	CPU        float64 // seconds of CPU per 1,000 jobs, of this process
}

// ticket is the data of the jobs.
type ticket struct {
	Key string `json:"key"`
}

// answering is an outside service. It answers the oldest request when the configured number of
// answers is awaited.
type answering struct {
	s        *jobs.Service
	requests chan string
	enough   int
	over     atomic.Int64
	most     atomic.Int64
}

const answeredName = "www-prod/Charge"

func (a *answering) kind(respond bool) runner.Type[ticket, int] {
	t := runner.Type[ticket, int]{
		Name:    answeredName,
		Key:     func(t ticket) string { return t.Key },
		Request: func(_ context.Context, t ticket) error { a.requests <- t.Key; return nil },
	}
	if respond {
		t.Response = func(_ context.Context, t ticket, _ int) (ticket, error) { return t, nil }
	}
	return t
}

// answer answers requests until the channel of requests is closed. Until drain is closed, it waits
// while fewer requests than a.enough are in the channel. Returns an error if an answer is not
// accepted.
func (a *answering) answer(ctx context.Context, drain <-chan struct{}, respond bool) error {
	for key := range a.requests {
		for len(a.requests) < a.enough {
			select {
			case <-drain:
			case <-time.After(time.Millisecond):
				continue
			}
			break
		}
		if n := int64(len(a.requests)); n > a.most.Load() {
			a.most.Store(n)
		}
		r, err := a.s.Complete(ctx, answeredName, key, 1)
		if err != nil || r.Kind != jobs.Accepted {
			return fmt.Errorf("the answer for %s was %s: %w", key, r.Kind, err)
		}
		if !respond {
			a.over.Add(1)
		}
	}
	return nil
}

// answers measures jobs whose answers come from outside. The jobs are created one at a time, run by
// a runner and answered one at a time.
func answers(ctx context.Context, url string, o *options) (err error) {
	s, closeService, err := service(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, closeService()) }()
	a := &answering{s: s, requests: make(chan string, o.n), enough: o.answers / 2}
	kind := a.kind(o.respond)
	worker, err := runner.New(runner.Config{Service: s, Queue: &queue.Queue{Name: "bench"}, Workers: 2 * o.clients})
	if err != nil {
		return err
	}
	if err := kind.Register(worker); err != nil {
		return err
	}
	over := func() int64 {
		if o.respond {
			return worker.Stats().Ran
		}
		return a.over.Load()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 2*o.clients+1)
	stopRunner, runnerEnded := context.WithCancel(ctx)
	wg.Go(func() { errs <- worker.Run(stopRunner) })
	defer runnerEnded()
	drain := make(chan struct{})
	for range o.clients {
		wg.Go(func() { errs <- a.answer(ctx, drain, o.respond) })
	}
	began, cpu := time.Now(), processCPU()
	var made, goroutines atomic.Int64
	_, err = parallel(o.n, o.clients, func(int) error {
		for made.Load()-over() >= int64(o.answers) {
			if len(errs) > 0 {
				return <-errs
			}
			pass(ctx, time.Millisecond)
		}
		n := made.Add(1)
		if n%1000 == 0 {
			goroutines.Store(max(goroutines.Load(), int64(runtime.NumGoroutine())))
		}
		_, err := kind.Create(ctx, s, "bench", ticket{strconv.FormatInt(n, 10)})
		return err
	})
	close(drain)
	for err == nil && over() < int64(o.n) {
		if len(errs) > 0 {
			err = <-errs
		}
		pass(ctx, time.Millisecond)
	}
	took := time.Since(began)
	close(a.requests)
	runnerEnded()
	wg.Wait()
	for err == nil && len(errs) > 0 {
		err = <-errs
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(AnswersReport{
		Store: o.store, N: o.n, Clients: o.clients, InFlight: o.answers, Awaited: int(a.most.Load()), Respond: o.respond,
		Rate: float64(o.n) / took.Seconds(), Goroutines: int(goroutines.Load()), CPU: (processCPU() - cpu).Seconds() / float64(o.n) * 1000,
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
