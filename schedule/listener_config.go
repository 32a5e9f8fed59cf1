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

// Defaults of [ListenerConfig].
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
	// Store holds the entries. The listener does not close it.
	Store Store
	// Name is the name of the schedule; see [Config].
	Name string
	// Submit submits a task for each tick, with the id of the tick. Consumers run the task. If Submit
	// is also a task.BatchSubmitter, as a producer is, ticks that are due together are submitted
	// together.
	//
	// Default: nil, which runs the handlers registered with the Listener in place.
	Submit task.Submitter
	// TaskName returns the name of the task for the job of an entry. A job may have any name, but
	// brokers accept only names that are valid for task.CheckName. It is used only with Submit.
	//
	// Default: the job's name.
	TaskName func(job string) string
	// Results is the result store for the results of runs. [OverlapSkip] needs it. With Submit it must
	// be the result store of the consumers. In place, the listener records its runs there.
	//
	// Default: nil, no results are recorded.
	Results resultstore.ResultStore
	// Workers is the number of handlers that run at the same time. Default: GOMAXPROCS.
	Workers int
	// Poll is the longest time between two requests to the store for due ticks. A store that is a
	// [Watcher] needs it only as a precaution.
	//
	// Default: 500 ms, and 5 s for a Watcher. 1 ms to one minute.
	Poll time.Duration
	// Lease is the time after which a claim ends unless it is renewed. The listener renews it at each
	// third of this time. If the listener dies, its ticks are due again after this time.
	//
	// Default: 30 s. At least 300 ms.
	Lease time.Duration
	// UnknownDelay is the delay of a postponed tick, if this listener cannot run it: it has no handler
	// for the job, for example during a deployment, or the task could not be submitted. Before the
	// first time, the tick is left to other listeners for 10 s, or for UnknownDelay if that is
	// shorter. Default: 1 min.
	//
	// UnknownLimit is the lateness after which such a tick is given up, if its entry has a later tick.
	// The last tick of an entry is never given up. Default: 24 h.
	UnknownDelay, UnknownLimit time.Duration
	// ShutdownTimeout limits how long handlers continue after the context of Run has ended. Default:
	// 30 s.
	ShutdownTimeout time.Duration
	// Sweep is the interval between searches for entries without a due time, which another program or
	// an older version may leave behind. Default: 5 min. Negative: never.
	//
	// Grace is how long such an entry must have had no due time before the listener repairs it.
	// Default: 10 min.
	Sweep, Grace time.Duration
	// OnReport is called for each problem, in addition to the log. It is called from several
	// goroutines and must return quickly. Default: nil.
	OnReport func(Report)
	// NodeID is the owner of this listener's claims. It must be unique among all listeners. Default:
	// made of the host name, the process id and random characters.
	NodeID string
	// Backoff is the delay between retries while the store is unavailable. Default: up to 100 ms at
	// first, up to 5 s later.
	Backoff task.Backoff
	// Logger receives problems that Run does not return. Default: slog.Default().
	Logger *slog.Logger
}

// Problem is the kind of a [Report].
type Problem string

// Problems that a Listener reports.
const (
	// ProblemBroken: the payload cannot be read by this version, and the tick was postponed by an
	// hour. If the payload is not JSON, the entry lost its due time and stays in the store.
	ProblemBroken Problem = "broken"
	// ProblemUnknown: this listener has no handler for the job. The tick was postponed. Repeated
	// reports are one hour apart.
	ProblemUnknown Problem = "unknown"
	// ProblemRefused: the task could not be submitted, or an overlap policy could not be checked. The
	// tick was postponed. Repeated reports are one hour apart.
	ProblemRefused Problem = "refused"
	// ProblemGivenUp: the tick was postponed for longer than UnknownLimit. The entry continues with
	// its next tick.
	ProblemGivenUp Problem = "given up"
	// ProblemFailed: the handler returned an error or panicked. The tick counts as done.
	ProblemFailed Problem = "failed"
	// ProblemLost: the lease ended and another listener claimed the tick.
	ProblemLost Problem = "lost"
	// ProblemRepaired: the entry had no due time and got one again.
	ProblemRepaired Problem = "repaired"
)

// Report describes one problem.
type Report struct {
	Problem Problem
	Entry   Entry
	Job     string    // "" if the payload cannot be read
	Due     time.Time // of the tick; zero if the problem concerns no tick
	Task    task.ID   // id of the tick's task; "" without a tick
	Err     error
}

// Stats holds the counts of a listener since it was made.
type Stats struct {
	Ran       int64 // handlers in place that returned nil
	Failed    int64 // handlers in place that returned an error or panicked
	Submitted int64 // ticks whose task was confirmed by Submit
	Skipped   int64 // ticks left out by a misfire or overlap policy
	PutOff    int64 // ticks postponed because they could not be read, run or submitted
	Dropped   int64 // ticks given up, and ticks whose payload is not JSON
	Again     int64 // ticks with an earlier claim of a listener that died or released them
	Lost      int64 // ticks that another listener claimed while this one held them
	Repaired  int64
}

// check sets each unset field of c to its default, except Submit, Results, OnReport and Backoff.
// Name becomes the store's name. It returns an error that joins all problems: those of nameOf,
// [ErrUnsupported] for a result store that stores nothing, an invalid NodeID, a negative Workers,
// and durations out of range. Any Sweep is valid.
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
		errs = append(errs, fmt.Errorf("schedule: Workers is %d, not 0 or more", c.Workers))
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

// forward returns the call of a task for a JSON list of arguments, using the task's definition. It
// returns [task.ErrBadArgs] if they cannot be decoded.
type forward func(args json.RawMessage) (task.Call, error)
