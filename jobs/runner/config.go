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

// The defaults of [RunnerConfig].
const (
	DefaultLease           = 30 * time.Second
	DefaultTimeout         = 24 * time.Hour
	DefaultOutstanding     = 10_000
	DefaultSweep           = time.Minute
	DefaultPutOff          = time.Minute
	DefaultShutdownTimeout = 30 * time.Second
)

// RunnerConfig configures a [Runner]. Service must be set, and with Submit also Results.
type Config struct {
	// Service hands the jobs out. The runner does not close it.
	Service *jobs.Service
	// Names are the names of the jobs that are run, all of which have to be registered, or dispatched, when Run begins. nil: all that are.
	Names []string
	// Queue is the queue whose jobs are run, whatever their names, so that Names cannot be set. nil: jobs that are in no queue.
	Queue *queue.Queue
	// Workers is how many handlers run at a time. Jobs that await answers need none. 0: as many as there are processors (GOMAXPROCS).
	Workers int
	// Lease is how long the jobs of a runner that died stay with it. Each is renewed three times in that time while it runs. A job with RetryAfter has
	// no lease: that says when it is handed out again. 0: 30 s. At least 300 ms.
	Lease time.Duration

	// Submit gets jobs as tasks, whose consumers run them, with queues, limits and retries of their own. A producer is one. Another should have a method
	// Pending(task.ID) task.Pending too, as a producer has: else results that are not JSON cannot be read by another runner than that which submitted the task, and
	// fail the job.
	// nil: the handlers registered here run in place.
	Submit task.Submitter
	// Results is where consumers record the ends of these tasks. One that lives only in reply queues cannot be used.
	Results resultstore.ResultStore
	// Timeout is how long a job that was dispatched is left to its task, retries included. After it, the task is submitted again, with the id it had, unless
	// its end is recorded. 0: 24 h. At least Lease.
	Timeout time.Duration
	// Outstanding is how many dispatched jobs there may be whose end this runner waits for; at that number it takes no more. 0: 10,000.
	Outstanding int
	// Sweep is how often the records of all running jobs of these names are looked at, for those whose runner died before it heard of an end. It is done
	// when Run begins, too. 0: 1 min. At least 100 ms.
	Sweep time.Duration
	// PutOff is after how long a job whose task could not be submitted is tried again, and one of a queue that nothing is registered for. 0: 1 min. At least 100 ms.
	PutOff time.Duration

	// ShutdownTimeout is how long handlers may go on after Run's context has ended. 0: 30 s.
	ShutdownTimeout time.Duration
	// OnReport is told of what went wrong, besides the Logger. It is called from several goroutines and must be quick. nil: nobody.
	OnReport func(Report)
	// NodeID names this runner to its handlers (task.Request). "": made of host, process and chance.
	NodeID string
	// Backoff is between attempts while the store or the broker is away. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told of what Run does not return. nil: slog.Default().
	Logger *slog.Logger
}

// Problem is what a [Report] is about.
type Problem string

// The problems.
const (
	ProblemFailed  Problem = "failed"   // the run has failed, with no attempt left: the job is FAILED
	ProblemLost    Problem = "lost"     // the job was handed out to another, or somebody else ended it, while it ran here
	ProblemRefused Problem = "refused"  // its task could not be submitted: it is tried again later
	ProblemGivenUp Problem = "given up" // it was handed out ten times after its RetryAfter: it is FAILED
	ProblemUnknown Problem = "unknown"  // it is in the queue, and nothing is registered for its name: it is tried again later
	ProblemWindow  Problem = "window"   // its windows cannot be read here, as where their zone is not known: it is looked at again after a minute
)

// Report is one thing that went wrong.
type Report struct {
	Problem Problem
	Job     jobs.Job
	Task    task.ID // of its run
	Err     error
}

// RunnerStats count what a runner has done since it was made.
type Stats struct {
	Ran       int64 // runs in place that have ended well
	Retried   int64 // attempts in place that are to be repeated, or were snoozed
	Failed    int64 // runs that have failed
	GivenBack int64 // jobs that were given back at a stop
	Submitted int64 // tasks that were confirmed
	Finished  int64 // dispatched jobs that were finished from a record that says that the task succeeded
	PutOff    int64 // jobs whose task could not be submitted, or that nothing is registered for
	Deferred  int64 // attempts that were left to their answer
	Answered  int64 // answers, refusals included, that were looked at here; one that ends its job at once is not
	TimedOut  int64 // attempts without an answer in time
	Lost      int64 // jobs that another got, or ended, while they ran here; what this runner had to say of them was ignored
	Late      int64 // jobs, among Finished and Failed, whose end was found by a look at the records
}

// complete fills in the defaults and returns all problems.
func (c *Config) complete() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("jobs: RunnerConfig.Service is not set"))
	}
	if c.Submit != nil && c.Results == nil {
		errs = append(errs, errors.New("jobs: RunnerConfig.Submit needs Results: a job that was dispatched ends with the record of its task"))
	}
	if c.Results != nil && resultstore.RepliesOnly(c.Results) {
		errs = append(errs, fmt.Errorf("%w: this result store hands results only to the process that submitted a task; "+
			"jobs need one that can be asked later, such as Redis, NATS or SQL", jobs.ErrUnsupported))
	}
	for _, name := range c.Names {
		errs = append(errs, jobstore.CheckName(name))
	}
	if c.Queue != nil {
		q := *c.Queue
		errs = append(errs, q.Complete())
		c.Queue = &q
		if c.Names != nil {
			errs = append(errs, errors.New("jobs: RunnerConfig.Names and Queue are both set: a queue's runner runs all of its jobs"))
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
			errs = append(errs, fmt.Errorf("jobs: RunnerConfig.%s is %d, not 1 to %d", n.name, *n.is, 1<<20))
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
			errs = append(errs, fmt.Errorf("jobs: RunnerConfig.%s is %v, not %v to %v", d.name, *d.is, d.least, d.most))
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
