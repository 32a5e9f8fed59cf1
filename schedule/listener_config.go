package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The defaults of [ListenerConfig].
const (
	DefaultPoll            = 500 * time.Millisecond
	DefaultLease           = 30 * time.Second
	DefaultUnknownDelay    = time.Minute
	DefaultUnknownLimit    = 24 * time.Hour
	DefaultShutdownTimeout = 30 * time.Second
	DefaultSweep           = 5 * time.Minute
	DefaultGrace           = 10 * time.Minute
)

// ListenerConfig configures a [Listener]. Only Store must be set.
type ListenerConfig struct {
	// Store keeps the entries. The listener does not close it.
	Store Store
	// Name is the name of the schedule; see [Config].
	Name string
	// Submit gets a task for each tick, with the tick's id; whoever consumes it runs it, with retries, results and all. If it is a
	// task.BatchSubmitter too, as a producer is, ticks that are due together are submitted together. nil: the handlers registered
	// here run in place.
	Submit task.Submitter
	// TaskName gives the name under which the job of an entry is submitted, which has to be one that brokers take (task.CheckName), while
	// a job may have any. nil: its own.
	TaskName func(job string) string
	// Results is where the ends of runs are recorded. With Submit it has to be the one of the consumers. It is needed for
	// [OverlapSkip]; runs in place are recorded there for whoever knows the id. nil: none.
	Results resultstore.ResultStore
	// Workers is how many handlers run at a time. 0: as many as there are processors (GOMAXPROCS).
	Workers int
	// Poll is how often the store is asked at least. A store that is no [Watcher] is asked so often; one that is, only as a precaution
	// and when something is due. 0: 500 ms, and 5 s with a Watcher. At most a minute.
	Poll time.Duration
	// Lease is how long the ticks of a listener that died stay with it. Each is renewed three times in that time while it runs. 0: 30 s.
	// At least 300 ms.
	Lease time.Duration
	// UnknownDelay and UnknownLimit are for entries whose job has no handler here, in the middle
	// of a deployment perhaps. Their ticks are left to other listeners for 10 s, or for
	// UnknownDelay if that is shorter, and then put off by UnknownDelay, again and again. A tick
	// that is later than UnknownLimit is given up if its entry has another one: the entry goes on
	// with that. A last tick waits as long as it takes. Ticks that could not be submitted are
	// treated alike. 0: 1 min and 24 h.
	UnknownDelay, UnknownLimit time.Duration
	// ShutdownTimeout is how long runs may go on after Run's context has ended. 0: 30 s.
	ShutdownTimeout time.Duration
	// Sweep is how often the store is searched for entries that another program, or an older one,
	// has left without a time; one that is found again after Grace gets a time. 0: 5 min and 10
	// min. Negative: never.
	Sweep, Grace time.Duration
	// OnReport is told of what went wrong, besides the Logger. It is called from several goroutines and must be quick. nil: nobody.
	OnReport func(Report)
	// NodeID names this listener in its claims; no other may have it. "": made of host, process and chance.
	NodeID string
	// Backoff is between attempts while the store is away. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told of what Run does not return. nil: slog.Default().
	Logger *slog.Logger
}

// Problem is what a [Report] is about.
type Problem string

// The problems.
const (
	// ProblemBroken: the payload cannot be read here, and was put off by an hour. If it is no JSON
	// it was dropped from those due, and kept.
	ProblemBroken  Problem = "broken"
	ProblemUnknown Problem = "unknown"  // the job has no handler here: put off; told at first, and then each hour
	ProblemRefused Problem = "refused"  // the task could not be submitted: put off; told likewise
	ProblemGivenUp Problem = "given up" // the tick was put off for too long; the entry goes on
	ProblemFailed  Problem = "failed"   // the handler returned an error or panicked; the run counts as done
	ProblemLost    Problem = "lost"     // the lease ran out and another listener took the tick
	ProblemMended  Problem = "mended"   // the entry had lost its time and got one again
)

// Report is one thing that went wrong.
type Report struct {
	Problem Problem
	Entry   Entry
	Job     string    // "" if the payload cannot be read
	Due     time.Time // of the tick; zero if it is about none
	Task    task.ID   // of the tick
	Err     error
}

// Stats count what a listener has done since it was made.
type Stats struct {
	Ran       int64 // handlers that have returned nil, in place
	Failed    int64 // handlers that have failed or panicked
	Submitted int64 // ticks whose task was confirmed
	Skipped   int64 // ticks left out by a policy
	PutOff    int64 // ticks of unknown jobs and of entries that cannot be read, and those that could not be submitted
	Dropped   int64 // ticks given up, and those of entries that are no JSON
	Again     int64 // ticks taken over from a listener that died, or that gave them back
	Lost      int64 // ticks that another listener took over from this one
	Mended    int64
}

// check fills in the defaults and returns all problems.
func (c *ListenerConfig) check() error {
	name, err := nameOf(c.Name, c.Store)
	errs := []error{err}
	c.Name = name
	if c.Results != nil && resultstore.RepliesOnly(c.Results) {
		errs = append(errs, errReplies)
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	}
	errs = append(errs, checkText("node id", c.NodeID, MaxOwner))
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("schedule: %d workers", c.Workers))
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
		if c.Store != nil {
			if _, ok := capability.As[Watcher](c.Store); ok {
				c.Poll = 10 * DefaultPoll
			}
		}
	}
	for _, d := range []struct {
		name             string
		is               *time.Duration
		def, least, most time.Duration
	}{
		{"poll", &c.Poll, DefaultPoll, time.Millisecond, time.Minute},
		{"lease", &c.Lease, DefaultLease, 300 * time.Millisecond, MaxLease},
		{"delay of unknown jobs", &c.UnknownDelay, DefaultUnknownDelay, MinLease, MaxLease},
		{"limit of unknown jobs", &c.UnknownLimit, DefaultUnknownLimit, 0, 100 * 365 * 24 * time.Hour},
		{"shutdown timeout", &c.ShutdownTimeout, DefaultShutdownTimeout, 0, 24 * time.Hour},
		{"grace", &c.Grace, DefaultGrace, 0, 24 * time.Hour},
	} {
		if *d.is == 0 {
			*d.is = d.def
		}
		if *d.is < d.least || *d.is > d.most {
			errs = append(errs, fmt.Errorf("schedule: the %s is %v, not %v to %v", d.name, *d.is, d.least, d.most))
		}
	}
	if c.Sweep == 0 {
		c.Sweep = DefaultSweep
	}
	if c.TaskName == nil {
		c.TaskName = func(job string) string { return job }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// forward makes the call of a job whose definition is known.
type forward func(args json.RawMessage) (task.Call, error)
