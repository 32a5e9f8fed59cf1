package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The defaults of [Config].
const (
	DefaultLease           = 30 * time.Second
	DefaultTimeout         = 24 * time.Hour
	DefaultOutstanding     = 10_000
	DefaultSweep           = time.Minute
	DefaultPutOff          = time.Minute
	DefaultShutdownTimeout = 30 * time.Second
)

// Config configures a [Runner]. Service is required. Submit also requires Results.
type Config struct {
	// Service is the service of the jobs. The runner does not close it.
	Service *jobs.Service
	// Names contains the names of the jobs to run. Each must be registered, or dispatched, when Run
	// begins. nil: all registered or dispatched names.
	Names []string
	// Queue is the queue whose jobs run, whatever their names; Names must then be nil. nil: jobs
	// without a queue.
	Queue *queue.Queue
	// Workers limits the number of handlers that run at a time. Jobs that await answers need none.
	// Default: GOMAXPROCS.
	Workers int
	// Lease is the time after which another runner can claim the jobs of a runner that died. The lease
	// of a running job is renewed three times in this period. A job with RetryAfter has no lease: it
	// is claimed again after RetryAfter. Default: 30 s. At least 300 ms.
	Lease time.Duration

	// Submit submits jobs as tasks. Consumers run them, with their own queues, limits and retries.
	// nil: the handlers registered here run in this process. A producer is a task.Submitter. Any other
	// submitter should have the producer's method Pending(task.ID) task.Pending. Without this method
	// other runners cannot read results that are not JSON, and fail their jobs.
	Submit task.Submitter
	// Results is the store in which consumers record the ends of these tasks. A store that only uses
	// reply queues is refused.
	Results resultstore.ResultStore
	// Timeout is the time that a dispatched job waits for its task, retries included. Then the task is
	// submitted again with the same id, unless its end is recorded. Default: 24 h. At least Lease.
	Timeout time.Duration
	// Outstanding limits the number of dispatched jobs whose end this runner waits for. At the limit
	// it claims no more jobs. Default: 10,000.
	Outstanding int
	// Sweep is the interval between checks of the records of all running jobs of this runner. A check
	// finds ends that another runner did not store because it died. The first check runs when Run
	// begins. Default: 1 min. At least 100 ms.
	Sweep time.Duration
	// PutOff is the delay of a job whose task could not be submitted, and of a queue's job without a
	// handler. Default: 1 min. At least 100 ms.
	PutOff time.Duration

	// ShutdownTimeout is the time that handlers may still run after Run's context has ended. Default:
	// 30 s.
	ShutdownTimeout time.Duration
	// OnReport receives problems, which are also logged. It is called from several goroutines and must
	// return quickly. nil: not called.
	OnReport func(Report)
	// NodeID identifies this runner in the task.Request of its handlers. Default: a name from host,
	// process and a random part.
	NodeID string
	// Backoff is the delay between tries while the store or the broker is unavailable. Default: from
	// 100 ms to 5 s.
	Backoff task.Backoff
	// Logger logs errors that Run does not return. Default: slog.Default().
	Logger *slog.Logger
}

// Problem is the kind of a [Report].
type Problem string

// The problems.
const (
	ProblemFailed  Problem = "failed"   // the run failed and no attempt is left: FAILED
	ProblemLost    Problem = "lost"     // another worker claimed or ended the job meanwhile
	ProblemRefused Problem = "refused"  // its task was not submitted: tried again later
	ProblemGivenUp Problem = "given up" // claimed ten times because of RetryAfter: FAILED
	ProblemUnknown Problem = "unknown"  // its name has no handler here: tried again later
	ProblemWindow  Problem = "window"   // its windows cannot be parsed here: held for a minute
)

// Report describes a problem with one job.
type Report struct {
	Problem Problem
	// Job is the job. A job that is dispatched as a task has no Data here.
	Job  jobs.Job
	Task task.ID // id of the task of its run
	Err  error
}

// Stats contains the counts of a runner since New.
type Stats struct {
	Ran       int64 // runs in this process that succeeded
	Retried   int64 // attempts in this process that are repeated or snoozed
	Failed    int64 // runs that failed
	GivenBack int64 // jobs that were given back at a stop
	Submitted int64 // tasks that were confirmed
	Finished  int64 // dispatched jobs whose task succeeded, by its record
	PutOff    int64 // jobs that were postponed: not submitted, or no handler
	Deferred  int64 // attempts that wait for their answer
	Answered  int64 // answers and refusals that this runner handled
	TimedOut  int64 // attempts without an answer in time
	Lost      int64 // jobs that another worker claimed or ended meanwhile
	Late      int64 // those ends in Finished and Failed that a sweep found
}

// complete sets the defaults and checks the fields. Queue is replaced by a checked copy. Returns
// all problems, joined: a missing Service, an invalid name, a number or duration out of its range,
// and fields that exclude each other. Timeout must not be below Lease. Submit requires Results that
// are stored.
func (c *Config) complete() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("runner: Config.Service is not set"))
	}
	if c.Submit != nil && c.Results == nil {
		errs = append(errs, errors.New("runner: Config.Submit requires Results: a dispatched job ends by the record of its task"))
	}
	if c.Results != nil && resultstore.RepliesOnly(c.Results) {
		errs = append(errs, fmt.Errorf("%w: this result store sends results only to the process that submitted a task; "+
			"use one that stores them, such as Redis, NATS or SQL", jobs.ErrUnsupported))
	}
	for _, name := range c.Names {
		errs = append(errs, jobstore.CheckName(name))
	}
	if c.Queue != nil {
		q := *c.Queue
		errs = append(errs, q.Complete())
		c.Queue = &q
		if c.Names != nil {
			errs = append(errs, errors.New("runner: Config.Names and Queue are both set; a queue's runner runs all jobs of the queue, so remove Names"))
		}
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	}
	for _, n := range []struct {
		name string
		is   *int
		def  int
	}{
		{"Workers", &c.Workers, runtime.GOMAXPROCS(0)},
		{"Outstanding", &c.Outstanding, DefaultOutstanding},
	} {
		if *n.is == 0 {
			*n.is = n.def
		}
		if *n.is < 1 || *n.is > 1<<20 {
			errs = append(errs, fmt.Errorf("runner: Config.%s is %d, not 1 to %d", n.name, *n.is, 1<<20))
		}
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	for _, d := range []struct {
		name             string
		is               *time.Duration
		def, least, most time.Duration
	}{
		{"Lease", &c.Lease, DefaultLease, 300 * time.Millisecond, time.Hour},
		{"Timeout", &c.Timeout, DefaultTimeout, c.Lease, task.MaxTimeLimit / 2},
		{"Sweep", &c.Sweep, DefaultSweep, 100 * time.Millisecond, 24 * time.Hour},
		{"PutOff", &c.PutOff, DefaultPutOff, 100 * time.Millisecond, 24 * time.Hour},
		{"ShutdownTimeout", &c.ShutdownTimeout, DefaultShutdownTimeout, 0, 24 * time.Hour},
	} {
		if *d.is == 0 {
			*d.is = d.def
		}
		if *d.is < d.least || *d.is > d.most {
			errs = append(errs, fmt.Errorf("runner: Config.%s is %v, not %v to %v", d.name, *d.is, d.least, d.most))
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
