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

// Runner runs due jobs, in any number of processes. It is a task.Registrar: handlers are registered
// by the names of jobs, as with a consumer. Make one with [New].
//
// In place, the arguments of a handler are the job's data. A result that is a JSON object becomes
// the data when the run is finished; a repeated job passes them to its next run. Otherwise the data
// stay. An error has the same effect as in a consumer, by its verdict or the task's metadata:
// another attempt in the same run, or FAILED. If the process dies, the job is claimed again when
// its lease, or its RetryAfter, has ended.
//
// A handler whose answer comes from outside calls [task.Expect] before it sends its request, and
// returns [task.Defer]. The job is then RUNNING without this process until [jobs.Service.Complete]
// or [jobs.Service.Reject] is called. A refusal, or no answer in time, is an error of the attempt.
// [Type] is the same with a function for each step.
//
// With Config.Queue the jobs are those of a queue, which has a limit, a throttler and windows.
// There a repeated attempt is QUEUED, which frees its place. Elsewhere it is RUNQUEUED, in the same
// run. One runner of a queue works at a time; the others stand by.
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

// counters holds the counts of Stats.
type counters struct {
	ran, retried, failed, givenBack, submitted, finished, putOff, lost, late atomic.Int64
	deferred, answered, timedOut                                             atomic.Int64
}

var _ task.Registrar = (*Runner)(nil)

// New returns a Runner. It does no I/O and starts no goroutine. Returns all problems of the
// configuration, joined.
func New(c Config) (*Runner, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return &Runner{c: c, definitions: map[string]*definition{}}, nil
}

// Register implements task.Registrar: h runs the jobs of this name. Any name of a job without
// control characters is allowed. A name registered after Run has begun is not asked for.
//
// Returns [jobstore.ErrUnsupported] if jobs are dispatched; see [Dispatch].
func (r *Runner) Register(name string, h task.Handler, defaults task.Metadata) error {
	if r.c.Submit != nil {
		return fmt.Errorf("%w: this runner dispatches jobs; register %q with a consumer", jobs.ErrUnsupported, name)
	}
	if err := jobstore.CheckName(name); err != nil {
		return err
	}
	return r.handlers.Register(name, h, defaults)
}

// Stats returns the counts since New. Safe for concurrent use.
func (r *Runner) Stats() Stats {
	c := &r.stats
	return Stats{
		Ran: c.ran.Load(), Retried: c.retried.Load(), Failed: c.failed.Load(), GivenBack: c.givenBack.Load(), Submitted: c.submitted.Load(),
		Finished: c.finished.Load(), PutOff: c.putOff.Load(), Lost: c.lost.Load(), Late: c.late.Load(),
		Deferred: c.deferred.Load(), Answered: c.answered.Load(), TimedOut: c.timedOut.Load(),
	}
}

// ErrRunning is the error of a second Run of a Runner.
var ErrRunning = errors.New("jobs: the runner runs already, or has run")

// Run runs jobs until ctx ends. Then it claims no more, and lets handlers go on for up to
// ShutdownTimeout. After that it ends their contexts with the cause task.ErrShutdown, and gives
// back the jobs of handlers that end because of it. Dispatched tasks go on without it.
//
// Run waits while the store is unavailable. A Runner runs once. Returns nil at a stop, an error for
// a mistake in its use, and [jobstore.ErrClosed] if the service was closed.
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

// names returns the names of the jobs to run.
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

// report reports a problem.
func (r *Runner) report(p Problem, j *jobs.Row, err error) {
	r.c.Logger.Warn("jobs: "+string(p), "job", int64(j.ID), "name", j.Name, "run", j.Run, "error", err)
	if r.c.OnReport != nil {
		id, _ := r.taskOf(j)
		r.c.OnReport(Report{Problem: p, Job: j.Job, Task: id, Err: err})
	}
}

// warn logs a failure of the store or the broker.
func (r *Runner) warn(what string, err error) {
	r.c.Logger.Warn("jobs: "+what, "error", err)
}

// object returns the result of a handler or a task as data. nil: it is no JSON object, or
// task.None.
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
