package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Runner runs due jobs, in any number of processes. It is a task.Registrar: handlers are registered
// by the names of jobs, as with a consumer. Create one with [New].
//
// Without Config.Submit handlers run in this process. The arguments of a handler are the job's
// data. A result that is a JSON object becomes the data at the end of the run; a repeated job
// passes them to its next run. Otherwise the data stay. An error has the same effect as in a
// consumer, by its verdict or the task's metadata: another attempt in the same run, or FAILED. If
// the process dies, the job is claimed again when its lease, or its RetryAfter, has ended.
//
// A handler whose answer comes from outside calls [task.Expect] before it sends its request, and
// returns [task.Defer]. The job then stays RUNNING without this process until
// [jobs.Service.Complete] or [jobs.Service.Reject] is called. A refusal, or no answer in time, is
// an error of the attempt. [Type] provides the same with one function per step.
//
// With Config.Queue the jobs are those of a queue, which has a limit, a throttler and windows. A
// repeated attempt of such a job is QUEUED and does not count against the limit. Any other job is
// RUNQUEUED, in the same run. One runner serves a queue at a time; the others wait.
//
// With Config.Submit jobs are dispatched as tasks, which consumers run; see [Dispatch].
type Runner struct {
	c           Config
	handlers    task.Mux
	mu          sync.Mutex
	definitions map[string]*definition // by job name
	stats       counters
	running     atomic.Bool
}

// counters contains the counts of Stats.
type counters struct {
	ran, retried, failed, givenBack, submitted, finished, putOff, lost, late atomic.Int64
	deferred, answered, timedOut                                             atomic.Int64
}

var _ task.Registrar = (*Runner)(nil)

// New returns a Runner with the defaults of c. It does no I/O and starts no goroutine. Returns all
// problems of c, joined. The Runner is then nil.
func New(c Config) (*Runner, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return &Runner{c: c, definitions: map[string]*definition{}}, nil
}

// Register makes h handle the jobs with this name. Any valid job name is allowed. It implements
// task.Registrar.
//
// Returns an error that wraps [ErrRunning] after Run has begun, whose names are fixed. Returns
// [jobstore.ErrUnsupported] if jobs are dispatched; see [Dispatch]. Returns an error for an
// invalid name or metadata, and [task.ErrDuplicateTask] for a registered name.
func (r *Runner) Register(name string, h task.Handler, defaults task.Metadata) error {
	if r.c.Submit != nil {
		return fmt.Errorf("%w: this runner dispatches jobs; register %q with a consumer", jobs.ErrUnsupported, name)
	}
	if err := jobstore.CheckName(name); err != nil {
		return err
	}
	if r.running.Load() {
		return fmt.Errorf("jobs: register %q before Run: %w", name, ErrRunning)
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

// ErrRunning is the error of a second Run of a Runner, and of a Register after Run.
var ErrRunning = errors.New("jobs: Run was already called; create a new runner")

// Run runs jobs until ctx ends. Then it claims no more jobs and waits for handlers, up to
// ShutdownTimeout. After that it ends their contexts with the cause task.ErrShutdown, and gives
// back the jobs of handlers that return because of it. It waits 5 s more for handlers. Dispatched
// tasks continue without the runner.
//
// While the store is unavailable, Run waits. A Runner runs only once. Returns nil after a stop,
// [ErrRunning] for a second call, and [jobstore.ErrClosed] if the service was closed. Returns other
// errors at once for a mistake in the configuration, such as no handlers. Returns an error at the
// end if handlers have not returned.
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	names, err := r.names()
	if err != nil {
		return err
	}
	o, err := newSession(r, names)
	if err != nil {
		return err
	}
	return o.run(ctx)
}

// names returns the names of the jobs to run: Config.Names, or all registered or dispatched names.
// Returns an error if no name is known, unless the runner submits stored tasks (see prepares).
// Returns an error that wraps task.ErrUnknownTask if a name of Config.Names is not known.
func (r *Runner) names() ([]string, error) {
	known := r.handlers.Names()
	if r.c.Submit != nil {
		known = r.dispatched()
	}
	if len(known) == 0 && !r.prepares() {
		return nil, errors.New("jobs: the runner has no handlers; call Register or Dispatch before Run")
	}
	if r.c.Names == nil {
		return known, nil
	}
	var errs []error
	for _, name := range r.c.Names {
		if _, ok := slices.BinarySearch(known, name); !ok {
			errs = append(errs, fmt.Errorf("%w: Config.Names contains %q, which is not registered", task.ErrUnknownTask, name))
		}
	}
	return r.c.Names, errors.Join(errs...)
}

// report logs a problem with a job as a warning. If Config.OnReport is set, it calls it in this
// goroutine with the job, the id of its task and err, which may be nil.
func (r *Runner) report(p Problem, j *jobs.Row, err error) {
	r.c.Logger.Warn("jobs: "+string(p), "job", int64(j.ID), "name", j.Name, "run", j.Run, "error", err)
	if r.c.OnReport != nil {
		id, _ := r.taskOf(j)
		r.c.OnReport(Report{Problem: p, Job: j.Job, Task: id, Err: err})
	}
}

// warn logs a failure of the store or the broker, described by what.
func (r *Runner) warn(what string, err error) {
	r.c.Logger.Warn("jobs: "+what, "error", err)
}

// object encodes the result of a handler or a task as data of a job. Returns nil for nil, task.None
// and a value that is not a JSON object: the data then stay. Returns an error that wraps
// task.ErrBadResult if the value cannot be encoded or is too long.
func object(value any) ([]byte, error) {
	if _, none := value.(task.None); none || value == nil {
		return nil, nil
	}
	text, err := taskio.Marshal(value)
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
