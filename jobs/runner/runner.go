package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Runner runs jobs that are due, in any number of processes. It is a task.Registrar: handlers are registered by the names of jobs, as with a
// consumer. Make one with [New].
//
// In place, a handler's arguments are the job's data, and its result, where that is a JSON object, becomes the data when the run is finished: what a repeated
// job hands to its next run. Without such a result they stay as they are. An error comes to what a consumer makes of it, by the
// verdict or the task's metadata: the attempt is repeated later, in the same run, or the job is FAILED. A job of which the process died is handed out again when its
// lease, or its RetryAfter, has ended.
//
// A handler whose answer comes from outside ends with [task.Defer], and says [task.Expect] before it sends its request: the job then is RUNNING without this process, until
// [jobs.Service.Complete] or [jobs.Service.Reject] is told the answer. A refusal, and no answer in time, are errors of the attempt. [Type] is the same for jobs that have a function for each
// step.
//
// With Config.Queue the jobs are those of a queue, which has a limit, a throttler and windows. There a repeated attempt is QUEUED, so that its place is free; else it is
// RUNQUEUED, in the same run. One runner of a queue is at work at a time, and the others stand by.
//
// With Config.Submit jobs are dispatched as tasks, which consumers run; see [Dispatch].
type Runner struct {
	c           Config
	handlers    task.Mux
	mu          sync.Mutex
	definitions map[string]*definition // by the names of jobs
	stats       counters
	running     atomic.Bool
}

// counters are Stats while they are counted.
type counters struct {
	ran, retried, failed, givenBack, submitted, finished, putOff, lost, late atomic.Int64
	deferred, answered, timedOut                                             atomic.Int64
}

var _ task.Registrar = (*Runner)(nil)

// New makes a Runner, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func New(c Config) (*Runner, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return &Runner{c: c, definitions: map[string]*definition{}}, nil
}

// Register implements task.Registrar: h runs the jobs of this name, which may be any that a job has, without control characters. What is registered after Run
// has begun is not asked for. Where jobs are dispatched there are no handlers to register ([jobstore.ErrUnsupported]); see [Dispatch].
func (r *Runner) Register(name string, h task.Handler, defaults task.Metadata) error {
	if r.c.Submit != nil {
		return fmt.Errorf("%w: this runner dispatches jobs; register %q with a consumer", jobs.ErrUnsupported, name)
	}
	if err := jobstore.CheckName(name); err != nil {
		return err
	}
	return r.handlers.Register(name, h, defaults)
}

// Stats returns what was counted.
func (r *Runner) Stats() Stats {
	c := &r.stats
	return Stats{
		Ran: c.ran.Load(), Retried: c.retried.Load(), Failed: c.failed.Load(), GivenBack: c.givenBack.Load(), Submitted: c.submitted.Load(),
		Finished: c.finished.Load(), PutOff: c.putOff.Load(), Lost: c.lost.Load(), Late: c.late.Load(),
		Deferred: c.deferred.Load(), Answered: c.answered.Load(), TimedOut: c.timedOut.Load(),
	}
}

// ErrRunning is returned by a second Run of a Runner.
var ErrRunning = errors.New("jobs: the runner runs already, or has run")

// Run runs jobs until ctx ends. Then it takes no more, lets handlers go on for up to ShutdownTimeout, ends their contexts with cause
// task.ErrShutdown, and gives back the jobs of those that end because of it. What was dispatched goes on without it. The error is nil unless there was a mistake in using
// it, or the service was closed ([jobstore.ErrClosed]). While the store is away Run waits for it. A Runner runs once.
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	names, err := r.names()
	if err != nil {
		return err
	}
	o, err := newRound(r, names)
	if err != nil {
		return err
	}
	return o.run(ctx)
}

// names returns the names of the jobs that are run.
func (r *Runner) names() ([]string, error) {
	known := r.handlers.Names()
	if r.c.Submit != nil {
		known = r.dispatched()
	}
	if len(known) == 0 && !r.prepares() {
		return nil, errors.New("jobs: nothing is registered with the runner")
	}
	if r.c.Names == nil {
		return known, nil
	}
	var errs []error
	for _, name := range r.c.Names {
		if _, ok := slices.BinarySearch(known, name); !ok {
			errs = append(errs, fmt.Errorf("%w: %q, which Names has", task.ErrUnknownTask, name))
		}
	}
	return r.c.Names, errors.Join(errs...)
}

// report tells of a problem.
func (r *Runner) report(p Problem, j *jobs.Row, err error) {
	r.c.Logger.Warn("jobs: "+string(p), "job", int64(j.ID), "name", j.Name, "run", j.Run, "error", err)
	if r.c.OnReport != nil {
		id, _ := r.taskOf(j)
		r.c.OnReport(Report{Problem: p, Job: j.Job, Task: id, Err: err})
	}
}

// warn tells of what is wrong with the store or the broker.
func (r *Runner) warn(what string, err error) {
	r.c.Logger.Warn("jobs: "+what, "error", err)
}

// object returns what a handler or a task returned as data, nil where that is no JSON object. task.None is no result.
func object(value any) ([]byte, error) {
	if _, none := value.(task.None); none || value == nil {
		return nil, nil
	}
	text, err := errand.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", task.ErrBadResult, err)
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, nil
	}
	if err := jobstore.CheckData(text); err != nil {
		return nil, fmt.Errorf("%w: %w", task.ErrBadResult, err)
	}
	return text, nil
}
