package main

import (
	"context"
	"encoding/json"
	"os"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// IdleReport is the line that -idle prints.
type IdleReport struct {
	Store     string
	Scheduled int     // jobs that are due only in a year
	Throttled int     // jobs that are due but exceed a limit
	Awaiting  int     // jobs that await their answers
	Seconds   float64 // length of the measurement
	// processor time of this process in percent of one core; with SQLite that includes the database
	Core float64
}

const (
	settleFor = 3 * time.Second
	watchFor  = 30 * time.Second
)

// processCPU returns the processor time that this process has used.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// idle measures an idle runner beside many waiting jobs. A third waits for its time, a third for
// its turn, a third for its answer.
func idle(ctx context.Context, url string, o *options) (err error) {
	s, closeService, err := service(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, closeService()) }()
	third := o.idle / 3
	r := IdleReport{Store: o.store, Scheduled: third, Throttled: third, Awaiting: o.idle - 2*third}
	kind := runner.Type[ticket, int]{
		Name:    answeredName,
		Key:     func(t ticket) string { return t.Key },
		Request: func(context.Context, ticket) error { return nil },
	}
	worker, err := runner.New(runner.Config{Service: s, Queue: &queue.Queue{Name: "bench", Limit: float64(r.Awaiting)}, Workers: 2 * o.clients})
	if err != nil {
		return err
	}
	if err := kind.Register(worker); err != nil {
		return err
	}
	n := 0
	put := func(count int, opts ...func(*jobs.Spec)) error {
		for made := 0; made < count; {
			var specs []jobs.Spec
			for range min(perInsert, count-made) {
				n++
				spec, err := kind.Spec("bench", ticket{strconv.Itoa(n)}, opts...)
				if err != nil {
					return err
				}
				specs = append(specs, spec)
			}
			if _, err := s.CreateAll(ctx, specs); err != nil {
				return err
			}
			made += len(specs)
		}
		return nil
	}
	if err := put(r.Awaiting, func(s *jobs.Spec) { s.Priority = task.Set(1) }); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	for int(worker.Stats().Deferred) < r.Awaiting && len(ended) == 0 {
		pass(ctx, 10*time.Millisecond)
	}
	if err := put(r.Throttled); err != nil {
		return err
	}
	year := time.Now().AddDate(1, 0, 0)
	if err := put(r.Scheduled, func(s *jobs.Spec) { s.FirstRun = year }); err != nil {
		return err
	}
	pass(ctx, settleFor)
	if o.profile != "" { // profile only the measured part
		if err := startProfile(o.profile); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	began, cpu := time.Now(), processCPU()
	pass(ctx, watchFor)
	took := time.Since(began)
	r.Seconds, r.Core = took.Seconds(), 100*(processCPU()-cpu).Seconds()/took.Seconds()
	stop()
	if err := <-ended; err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
