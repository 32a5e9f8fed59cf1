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
	// Store is the database of the jobs. The service does not close it.
	Store Store
	// Repeats sets how the Repeat texts of jobs are parsed. With Snap, HOURLY, DAILY and WEEKLY have
	// the same effect as in Bedrock's server.
	Repeats when.RepeatConfig
	// Reanchor makes some repeats skip missed runs: the next run is the first slot after now. It
	// applies to repeats that count from SCHEDULED, only add, and have an interval below four hours.
	// Off: a job makes up for missed runs, one directly after another.
	Reanchor bool
	// Poll is the interval at which waiting calls of Get poll the store, in case a notification was
	// lost. Default: 1 s. From 10 ms to 1 min.
	Poll time.Duration
	// Retention is the time for which the service keeps the records of jobs that are over and have a
	// Queue or a Key. Within this time a late or repeated answer is distinguished from an unknown
	// one. Default: 24 h. At most [task.MaxTimeLimit].
	Retention time.Duration
	// EarlyFor is the retention of an early answer. Default: 1 min. At most [task.MaxTimeLimit].
	EarlyFor time.Duration
	// OnAnswer receives each answer that was not Accepted, with its Receipt. Purge passes it the early
	// answers that no job claimed, as [Unknown]. It may be called from any goroutine and must return
	// quickly. A panic is recovered and logged. nil: not called.
	OnAnswer func(Answer, Receipt)
	// Logger logs errors that are not returned to a caller. Default: slog.Default().
	Logger *slog.Logger
}

// Defaults of [Config].
const (
	DefaultRetention = 24 * time.Hour
	DefaultEarlyFor  = time.Minute
)

// Service applies the rules of jobs. Any number of processes may use one database. After an error
// that wraps [ErrUnavailable] the result of the call is unknown. Calls return [ErrClosed] if the
// store is closed. All methods are safe for concurrent use.
type Service struct {
	c     Config
	log   *slog.Logger
	count counters
	wait  *waitlist.List
	// noTaker and noDropper are set once a transaction of the store turns out not to implement Taker
	// or Dropper.
	noTaker, noDropper atomic.Bool
	windows            rules.Windows
	txn                *txn.Engine
	defaults           sync.Map // by job name; values are func(*Spec)
}

// New returns a service that stores its jobs in c.Store. It does no I/O and starts no goroutine.
// Fields of c that are zero get their defaults.
//
// Returns a nil service and all problems of c, joined: a missing Store, and each duration out of
// its range.
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
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.EarlyFor == 0 {
		c.EarlyFor = DefaultEarlyFor
	}
	if c.Retention < 0 || c.Retention > task.MaxTimeLimit || c.EarlyFor < 0 || c.EarlyFor > task.MaxTimeLimit {
		errs = append(errs, fmt.Errorf("jobs: Config.Retention %s or EarlyFor %s is not from 0 to %s", c.Retention, c.EarlyFor, task.MaxTimeLimit))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Service{c: c, log: c.Logger}
	s.wait = waitlist.New(waitlist.Config{
		Store: c.Store, Log: s.log, Poll: c.Poll, Take: s.claimDue, GiveBack: s.giveBackOrLog, Waiting: &s.count.waiting, Limit: MaxTake,
	})
	s.txn = txn.New(c.Store, s.updateRelated)
	return s, nil
}

// Store returns the store of the service.
func (s *Service) Store() Store { return s.c.Store }

// SetDefaults registers fn for the jobs of a name. Each later call of this service that creates
// such a job applies fn to a copy of its Spec, unless [Spec].NoDefaults is set. fn should change
// unset fields only. A second call for the same name replaces fn. fn must return quickly and may be
// called from any goroutine. Nothing is stored: other processes must register fn too.
func (s *Service) SetDefaults(name string, fn func(*Spec)) { s.defaults.Store(name, fn) }

// Close makes every Get, waiting or later, return [ErrClosed], and also a Next of its leaders
// ([queue.Leader]) that waits. It gives claims back that no caller has received: their jobs are due
// again. It blocks until no goroutine of the service runs.
//
// Returns the error of ctx if ctx ends first. Claims in progress are then cancelled; changes in
// progress continue. All other methods still work while the store is open, so a stopping program
// can end its jobs. Idempotent.
func (s *Service) Close(ctx context.Context) error {
	return errors.Join(s.wait.Close(ctx), s.txn.Wait(ctx))
}

// NewLeader returns a [queue.Leader], which claims the due jobs of the queue c.Queue in its Next.
// It does no I/O and starts no goroutine. Returns nil and all problems of c, joined.
//
// The leader competes with the leaders of other processes for the lease of the queue. While another
// leader has the lease, Next waits. After Close of this service, Next returns [ErrClosed] as soon
// as it has to wait. Close the leader after use.
func (s *Service) NewLeader(c queue.LeaderConfig) (*queue.Leader, error) {
	return queue.NewLeader(queue.Host{
		Store: s.c.Store, Closed: s.wait.Watcher.Ctx.Done(), Complete: s.addRelatives, GiveBack: s.giveBackOrLog,
		Taken: func(n int) { s.count.taken.Add(int64(n)) },
	}, c)
}

// Stats contains the counts of one service since New, in this process only.
type Stats struct {
	Created   int64 // jobs created
	Existed   int64 // specs with Unique whose job existed
	Taken     int64 // jobs claimed
	GivenUp   int64 // jobs that FAILED after ten claims by RetryAfter
	GivenBack int64 // claims that were given back
	Renewed   int64 // leases renewed
	Updated   int64 // calls of Update
	Finished  int64 // runs that succeeded
	Retried   int64 // runs and attempts that ended for another one
	Failed    int64 // runs that failed, and repeats without a next run
	Deleted   int64 // jobs deleted by Delete
	Cancelled int64 // calls of Cancel
	Requeued  int64 // jobs requeued
	Stale     int64 // calls that returned ErrStale
	Waiting   int64 // calls of Get that wait now
	Withdrawn int64 // calls of Withdraw
	Expected  int64 // keys that Expect has reserved
	Awaiting  int64 // attempts that began to wait for an answer
	Accepted  int64 // answers that a job or a task accepted, claimed early answers included
	Early     int64 // answers that were stored before their job awaited them
	Late      int64 // answers for jobs or tasks that were over
	Duplicate int64 // answers for jobs or tasks that already had an answer
	Unknown   int64 // early answers that no job claimed
	Purged    int64 // jobs and deferrals deleted after their retention
	TimedOut  int64 // jobs claimed by this service because no answer came in time
}

// counters contains the counts that Stats returns.
type counters struct {
	created, existed, taken, givenUp, givenBack, renewed, updated, finished, retried, failed, deleted, cancelled, requeued, stale, waiting atomic.Int64
	withdrawn, expected, awaiting, accepted, early, late, duplicate, unknown, purged, timedOut                                             atomic.Int64
}

// Stats returns the counts of this service since New. The counts are read one after the other, so
// they may differ by calls that run now.
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

// counted adds one to n if err is nil, or to the stale count if err wraps ErrStale. Other errors
// are not counted. It returns err unchanged.
func (s *Service) counted(n *atomic.Int64, err error) error {
	switch {
	case err == nil:
		n.Add(1)
	case errors.Is(err, ErrStale):
		s.count.stale.Add(1)
	}
	return err
}

// countStale adds one to the stale count if err wraps ErrStale. It returns err unchanged.
func (s *Service) countStale(err error) error {
	if errors.Is(err, ErrStale) {
		s.count.stale.Add(1)
	}
	return err
}
