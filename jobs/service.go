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

// DefaultPoll is how often those who wait look by themselves.
const DefaultPoll = time.Second

// Config configures a [Service]. Only Store must be set.
type Config struct {
	// Store keeps the jobs. The service does not close it.
	Store Store
	// Repeats says how repeats are read: with Snap, HOURLY, DAILY and WEEKLY are what Bedrock's server makes of them.
	Repeats when.RepeatConfig
	// Reanchor has repeats that count from SCHEDULED skip the runs that were missed, and go on with the first slot after now, if they only add
	// and the interval is below four hours. Off: missed runs are made up for, back to back.
	Reanchor bool
	// Poll is how often those who wait look by themselves, for what no word came of. 0: 1 s. From 10 ms to 1 min.
	Poll time.Duration
	// Keep is how long jobs of a queue, and those with a Key, are kept when they are over, so that an answer that comes late or twice is told from one that nobody
	// knows. 0: 24 h. At most [task.MaxTimeLimit].
	Keep time.Duration
	// EarlyFor is how long an answer is kept that comes before its job awaits it. 0: 1 min. At most [task.MaxTimeLimit].
	EarlyFor time.Duration
	// OnAnswer is told of every answer that was not Accepted, with its Receipt, and by Purge of early ones that nobody has claimed, as [Unknown]. It is quick, and
	// may be called from any goroutine. nil: nobody is told.
	OnAnswer func(Answer, Receipt)
	// Logger is told of what no caller hears. nil: slog.Default().
	Logger *slog.Logger
}

// Defaults of [Config].
const (
	DefaultKeep     = 24 * time.Hour
	DefaultEarlyFor = time.Minute
)

// Service holds the rules of a job's life. All methods may be called from any goroutine, and by any number of processes over one
// database. An error that wraps [ErrUnavailable] leaves open whether something was done.
type Service struct {
	c     Config
	log   *slog.Logger
	count counters
	wait  *waitlist.List
	// noTaker and noDropper are set once the store's transactions are known not to be one.
	noTaker, noDropper atomic.Bool
	windows            rules.Windows
	txn                *txn.Engine
	defaults           sync.Map // by the names of jobs: func(*Spec)
}

// New returns a service over c.Store. It does no I/O and starts no goroutine. All problems of c are returned, joined.
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

// SetDefaults has each job of a name made with the defaults that fn sets, whoever makes it, unless
// [Spec].NoDefaults is set. fn is quick, and may be called from any goroutine.
func (s *Service) SetDefaults(name string, fn func(*Spec)) { s.defaults.Store(name, fn) }

// Close ends every Get with [ErrClosed], those that wait and those to come, and waits until nothing of the service runs any more. What was on its way to
// them is given back. All other methods go on working for as long as the store does, so that who stops can still end his jobs. It is idempotent. When
// ctx ends before, its error is returned, and what is under way is given up.
func (s *Service) Close(ctx context.Context) error {
	return errors.Join(s.wait.Close(ctx), s.txn.Wait(ctx))
}

// Lead returns a part in serving a queue: the leader hands out the jobs of c.Queue while it has the
// lease of the queue, and stands by else. Close it. Who calls Lead does what a runner.Runner does
// otherwise: renews the lease of each job while it works at it (Renew, RenewAll), ends the run
// (Finish, Fail, NextAttempt, Await) and then calls Changed.
func (s *Service) Lead(c queue.LeaderConfig) (*queue.Leader, error) {
	return queue.NewLeader(queue.Host{
		Store: s.c.Store, Closed: s.wait.Look.Ctx.Done(), Complete: s.dress, GiveBack: s.returned,
		Taken: func(n int) { s.count.taken.Add(int64(n)) },
	}, c)
}

// Stats is what a service has done since it was made, in this process.
type Stats struct {
	Created   int64 // jobs made
	Existed   int64 // unique jobs that were there
	Taken     int64 // jobs handed out
	GivenUp   int64 // jobs that failed because ten repetitions after RetryAfter were used up
	GivenBack int64 // jobs that nobody had seen
	Renewed   int64 // leases renewed
	Updated   int64
	Finished  int64 // runs that have ended well
	Retried   int64
	Failed    int64 // runs that failed, those included whose repeat has no next run
	Deleted   int64
	Cancelled int64
	Requeued  int64
	Stale     int64 // what was refused with ErrStale
	Waiting   int64 // Gets that wait right now
	Withdrawn int64
	Expected  int64 // keys that runs have announced
	Awaiting  int64 // attempts that began to wait for an answer
	Accepted  int64 // answers that a job has got, early ones included that it has claimed
	Early     int64 // answers that were kept for a job that does not await them yet
	Late      int64 // answers for jobs that were over
	Duplicate int64 // answers for jobs that had one
	Unknown   int64 // early answers that nobody has claimed
	Purged    int64 // jobs deleted because their time was over
	TimedOut  int64 // jobs handed out here because no answer came in time
}

// counters are Stats while they are counted.
type counters struct {
	created, existed, taken, givenUp, givenBack, renewed, updated, finished, retried, failed, deleted, cancelled, requeued, stale, waiting atomic.Int64
	withdrawn, expected, awaiting, accepted, early, late, duplicate, unknown, purged, timedOut                                             atomic.Int64
}

// Stats returns what was counted.
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

// counted adds one to n if err is nil, and notes what was stale. It returns err.
func (s *Service) counted(n *atomic.Int64, err error) error {
	switch {
	case err == nil:
		n.Add(1)
	case errors.Is(err, ErrStale):
		s.count.stale.Add(1)
	}
	return err
}

// countStale notes what was stale. It returns err.
func (s *Service) countStale(err error) error {
	if errors.Is(err, ErrStale) {
		s.count.stale.Add(1)
	}
	return err
}
