package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/internal/waitlist"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// DefaultPoll is the default of [Config].Poll.
const DefaultPoll = time.Second

// Config configures a [Service]. Only Store is required.
type Config struct {
	// Store keeps the jobs. The service does not close it.
	Store Store
	// Repeats says how repeats are read. With Snap, HOURLY, DAILY and WEEKLY have the same effect
	// as in Bedrock's server.
	Repeats when.RepeatConfig
	// Reanchor makes some repeats skip missed runs and go on with the first slot after now. It
	// concerns repeats that count from SCHEDULED, only add, and have an interval below four hours.
	// Off: missed runs are made up for, back to back.
	Reanchor bool
	// Poll is the time between polls of waiting callers, for jobs that no word came of. Default: 1
	// s. From 10 ms to 1 min.
	Poll time.Duration
	// Keep is the retention of jobs that are over and have a Queue or a Key. A late or repeated
	// answer is then told from an unknown one. Default: 24 h. At most [task.MaxTimeLimit].
	Keep time.Duration
	// EarlyFor is the retention of an early answer. Default: 1 min. At most [task.MaxTimeLimit].
	EarlyFor time.Duration
	// OnAnswer receives each answer that was not Accepted, with its Receipt. Purge passes it the
	// early answers that no job claimed, as [Unknown]. It is quick, and is called from any
	// goroutine. nil: none.
	OnAnswer func(Answer, Receipt)
	// Logger logs errors that no caller receives. Default: slog.Default().
	Logger *slog.Logger
}

// Defaults of [Config].
const (
	DefaultKeep     = 24 * time.Hour
	DefaultEarlyFor = time.Minute
)

// Service applies the rules of jobs. All methods are safe for concurrent use, in any number of
// processes over one database. After an error that wraps [ErrUnavailable] the outcome of the call
// is unknown.
type Service struct {
	c     Config
	log   *slog.Logger
	count counters
	wait  *waitlist.List
	// noTaker and noDropper are set once a transaction of the store is found not to be a Taker or a
	// Dropper.
	noTaker, noDropper atomic.Bool
	windows            rules.Windows
	txn                *txn.Engine
	defaults           sync.Map // by the names of jobs: func(*Spec)
}

// New returns a service over c.Store. It does no I/O and starts no goroutine. Returns all problems
// of c, joined.
func New(c Config) (*Service, error) {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("jobs: Config.Store is not set"))
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Poll < 10*time.Millisecond || c.Poll > time.Minute {
		errs = append(errs, fmt.Errorf("jobs: Config.Poll %s is not from 10 ms to 1 min", c.Poll))
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	if c.EarlyFor == 0 {
		c.EarlyFor = DefaultEarlyFor
	}
	if c.Keep < 0 || c.Keep > task.MaxTimeLimit || c.EarlyFor < 0 || c.EarlyFor > task.MaxTimeLimit {
		errs = append(errs, fmt.Errorf("jobs: Config.Keep %s or EarlyFor %s is not from 0 to %s", c.Keep, c.EarlyFor, task.MaxTimeLimit))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Service{c: c, log: c.Logger}
	s.wait = waitlist.New(waitlist.Config{
		Store: c.Store, Log: s.log, Poll: c.Poll, Take: s.take, GiveBack: s.returned, Waiting: &s.count.waiting, Limit: MaxTake,
	})
	s.txn = txn.New(c.Store, s.after)
	return s, nil
}

// Store returns the store of the service.
func (s *Service) Store() Store { return s.c.Store }

// SetDefaults applies fn to the Spec of each new job of a name, in all calls of this service,
// unless [Spec].NoDefaults is set. fn is quick, and may be called from any goroutine.
func (s *Service) SetDefaults(name string, fn func(*Spec)) { s.defaults.Store(name, fn) }

// Close ends every Get with [ErrClosed], now and later, and waits until no goroutine of the service
// runs. Claims that no caller has seen are given back. It is idempotent. Returns the error of ctx
// if ctx ends first; running work is then abandoned.
//
// All other methods work as long as the store does, so that a program that stops can still end its
// jobs.
func (s *Service) Close(ctx context.Context) error {
	return errors.Join(s.wait.Close(ctx), s.txn.Wait(ctx))
}

// Lead returns a leader of a queue. It claims the jobs of c.Queue while it has the lease of the
// queue, and stands by otherwise. Close it.
func (s *Service) Lead(c queue.LeaderConfig) (*queue.Leader, error) {
	return queue.NewLeader(queue.Host{
		Store: s.c.Store, Closed: s.wait.Look.Ctx.Done(), Complete: s.addRelatives, GiveBack: s.returned,
		Taken: func(n int) { s.count.taken.Add(int64(n)) },
	}, c)
}

// Stats counts what a service has done in this process since New.
type Stats struct {
	Created   int64 // jobs created
	Existed   int64 // unique jobs that existed
	Taken     int64 // jobs claimed
	GivenUp   int64 // jobs that failed after ten claims by RetryAfter
	GivenBack int64 // claims that no caller had seen
	Renewed   int64 // leases renewed
	Updated   int64
	Finished  int64 // runs that succeeded
	Retried   int64
	Failed    int64 // runs that failed, also since their repeat has no next run
	Deleted   int64
	Cancelled int64
	Requeued  int64
	Stale     int64 // calls that returned ErrStale
	Waiting   int64 // calls of Get that wait now
	Withdrawn int64
	Expected  int64 // keys that Expect has reserved
	Awaiting  int64 // attempts that began to wait for an answer
	Accepted  int64 // answers that a job accepted, claimed early ones included
	Early     int64 // answers that were stored before their job awaits them
	Late      int64 // answers for jobs that were over
	Duplicate int64 // answers for jobs that had one
	Unknown   int64 // early answers that no job claimed
	Purged    int64 // jobs deleted after their retention
	TimedOut  int64 // jobs claimed here since no answer came in time
}

// counters holds the counts of Stats.
type counters struct {
	created, existed, taken, givenUp, givenBack, renewed, updated, finished, retried, failed, deleted, cancelled, requeued, stale, waiting atomic.Int64
	withdrawn, expected, awaiting, accepted, early, late, duplicate, unknown, purged, timedOut                                             atomic.Int64
}

// Stats returns the counts since New.
func (s *Service) Stats() Stats {
	c := &s.count
	return Stats{
		Created: c.created.Load(), Existed: c.existed.Load(), Taken: c.taken.Load(), GivenUp: c.givenUp.Load(), GivenBack: c.givenBack.Load(),
		Renewed: c.renewed.Load(), Updated: c.updated.Load(), Finished: c.finished.Load(), Retried: c.retried.Load(), Failed: c.failed.Load(), Deleted: c.deleted.Load(),
		Cancelled: c.cancelled.Load(), Requeued: c.requeued.Load(), Stale: c.stale.Load(), Waiting: c.waiting.Load(),
		Withdrawn: c.withdrawn.Load(), Expected: c.expected.Load(), Awaiting: c.awaiting.Load(), Accepted: c.accepted.Load(), Early: c.early.Load(), Late: c.late.Load(),
		Duplicate: c.duplicate.Load(), Unknown: c.unknown.Load(), Purged: c.purged.Load(), TimedOut: c.timedOut.Load(),
	}
}

// counted adds one to n if err is nil, and counts ErrStale. It returns err.
func (s *Service) counted(n *atomic.Int64, err error) error {
	switch {
	case err == nil:
		n.Add(1)
	case errors.Is(err, ErrStale):
		s.count.stale.Add(1)
	}
	return err
}

// countStale counts err if it is ErrStale. It returns err.
func (s *Service) countStale(err error) error {
	if errors.Is(err, ErrStale) {
		s.count.stale.Add(1)
	}
	return err
}
