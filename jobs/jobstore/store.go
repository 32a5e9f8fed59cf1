package jobstore

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// Store is a database of jobs for any number of processes. It applies no rules of jobs;
// jobs.Service does, on top of the transactions. Package jobstest tests every sentence of this
// port.
//
// All methods are safe for concurrent use. ctx limits every wait. Each method returns [ErrClosed]
// after Close. Each returns [ErrUnavailable] if the store does not reply before ctx ends, or if the
// result of a commit is unknown.
type Store interface {
	// Update runs fn in a transaction and commits it. A nil error means that all its changes are
	// stored durably. An error of fn rolls the transaction back and is returned unchanged.
	//
	// Transactions are serializable as far as they read the same jobs or lock the same names. fn may
	// run more than once, and may share its commit with other calls. So fn must set its results in
	// each run, return quickly, and have no other effects. It must return an error that a method of tx
	// returns; after any error but [ErrNotFound] the transaction cannot commit.
	Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Single is Update for an fn that calls only one method of tx, besides Now. It saves round trips
	// to a server.
	Single(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// View runs fn, which may only read. It locks no row. Each call of tx sees the commits before it.
	// Save, Delete, ExpireJobs and Lock return [ErrUnsupported].
	View(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Coming returns the names of jobs whose Due is after since and not after the store's time. It
	// returns at most max names, each once, and ignores jobs of queues. A zero since returns no names.
	Coming(ctx context.Context, since time.Time, max int) (Coming, error)
	// Watch makes the store call wake after commits of any process that gave a job a Due, or ended a
	// job of a queue. Saved deferrals and leases of queues count as well. Calls come from any
	// goroutine.
	//
	// names are the texts that the records return ([Row.Word], [Deferral.Word], [QueueLease.Word]).
	// nil: any text. A call is only a hint: calls may be lost or needless. wake must return at once.
	// stop ends the calls.
	Watch(wake func(names []string)) (stop func())
	// Close waits for running calls and releases all resources. Returns the error of ctx if ctx ends
	// first. Idempotent.
	Close(ctx context.Context) error
}

// Coming is the result of [Store].Coming. More reports that other names may be due. Now is the
// store's time. Next is the first Due after Now; zero if no job has one.
type Coming struct {
	Names []string
	More  bool
	Now   time.Time
	Next  time.Time
}

// Tx is a transaction of a [Store]. It ends when the function returns that received it. One
// goroutine at a time may use it.
type Tx interface {
	AnswerTx
	LeaseTx
	Finder
	// Now returns the store's time, by which all rules of jobs decide. It never goes backwards within
	// a transaction.
	Now(ctx context.Context) (time.Time, error)
	// Lock locks names until the transaction ends. It waits while another transaction holds one of
	// them. It is for things that have no row, such as a sequence key.
	//
	// A name has 1 to 300 bytes. The names of one call are locked in a fixed order; the caller must
	// keep the order of its calls. The text before the first space of a name is its kind. Lock all
	// names of a kind in one call: a store may lock the whole kind instead of very many names.
	Lock(ctx context.Context, names ...string) error
	// Save writes jobs. A job with an ID replaces the row with this id, which this transaction must
	// have locked. A job without an ID is new and receives its ID, in the order of the call.
	//
	// Returns [ErrNotFound] if no row has the ID of a job. All jobs are checked ([Row.Check]) before
	// the first is written. Save keeps no reference to its arguments.
	Save(ctx context.Context, jobs ...*Row) error
	// Delete deletes jobs and their Messages. This transaction must have locked the jobs. Missing ids
	// are ignored.
	Delete(ctx context.Context, ids ...ID) error
	// ExpireJobs deletes jobs whose Expires is set and not after by, and their Messages. It deletes at
	// most limit jobs, in the order of Expires; limit must be above 0. It skips jobs that another
	// transaction has locked. It returns the number of deleted jobs.
	ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error)
}

// Finder is the part of a transaction that reads jobs.
//
// Get, Jobs, Due and Line lock the jobs that they return until the transaction ends; in a View they
// do not. Get and Jobs wait for jobs that another transaction has locked, and return their new
// state. Due and Line skip such jobs. The other methods lock no row and wait for no transaction.
// Before changing a job that they return, read it again with Get or Jobs.
type Finder interface {
	// Get returns a job. Returns ErrNotFound if the job does not exist.
	Get(ctx context.Context, id ID) (Row, error)
	// Jobs returns the jobs with these ids, each once, in the order of ids. Missing ids are left out.
	Jobs(ctx context.Context, ids ...ID) ([]Row, error)
	// All returns a page of all jobs.
	All(ctx context.Context, p Page) ([]Row, error)
	// Named returns a page of the jobs with a name.
	Named(ctx context.Context, name string, p Page) ([]Row, error)
	// OfKey returns a page of the jobs with a name and a Key.
	OfKey(ctx context.Context, name, key string, p Page) ([]Row, error)
	// LastOver returns the newest job with a name and a Key that is over ([State.Over]), or nil.
	LastOver(ctx context.Context, name, key string) (*Row, error)
	// First returns the lowest id of the jobs of each group that are in one of the states; nil states:
	// any state. Groups without such a job are left out. The number of round trips to a server does
	// not depend on the number of groups.
	First(ctx context.Context, states []State, groups ...Group) (map[Group]ID, error)
	// OfQueue returns a page of the jobs of a queue.
	OfQueue(ctx context.Context, queue string, p Page) ([]Row, error)
	// Children returns a page of the children of a job.
	Children(ctx context.Context, parent ID, p Page) ([]Row, error)
	// Due returns jobs without a Queue that may be claimed, in the order of Priority, then Due, then
	// ID. It returns at most limit jobs; limit must be above 0.
	Due(ctx context.Context, d Due, limit int) ([]Row, error)
	// Line returns the due jobs of a queue that l selects, at most limit of them; limit must be above
	// 0. It locks only the returned jobs.
	Line(ctx context.Context, l Line, limit int) ([]Row, error)
	// Messages returns the Message of each of these jobs that has one. It locks nothing.
	Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error)
}

// Page selects a part of a list in the order of ids. A list for an empty name, key or queue, or for
// a parent of 0, is empty.
type Page struct {
	// States limits the result to jobs in these states. nil: any state.
	States []State
	// After limits the result to ids above this one.
	After ID
	// Limit is the maximum number of jobs. The jobs with the lowest ids are returned. 0: no limit.
	Limit int
}

// Line selects jobs of a queue whose Due has passed.
type Line struct {
	Queue string
	// State is the state of the jobs: QUEUED or RUNNING.
	State State
	// By is the latest Due. Zero: the store's time.
	By time.Time
	// Order is the order of the result.
	Order Order
	// MaxWeight, if set, limits the result to jobs with this Weight or less.
	MaxWeight task.Opt[int64]
	// After limits the result to jobs that follow this one in Order, by the Due, Priority and ID given
	// here. The stored job may differ. nil: all jobs.
	After *Row
}

// Order is the order in which the jobs of a queue are considered.
type Order int

// The orders. Jobs that are equal in both are ordered by ID.
const (
	TimeFirst     Order = iota // by Due, then by Priority
	PriorityFirst              // by Priority, then by Due
)

// QueueWord returns the watch text for jobs of a queue.
func QueueWord(queue string) string { return NoName + queue }

// NoName is the first byte of watch texts that are not job names.
const NoName = "\x1f"

// Word returns the text that a [Store] sends to watchers (Store.Watch) when the job is saved. "":
// nothing is sent.
//
//   - Without a Queue it is the name of the job if the job has a Due, even a future one.
//   - With a Queue it is the [QueueWord], also after the end of the job. It is "" while the job
//     runs and is not due at now, as after a renewal.
func (j *Row) Word(now time.Time) string {
	switch {
	case j.Queue == "" && j.Due.IsZero():
		return ""
	case j.Queue == "":
		return j.Name
	case j.State.Runs() && (j.Due.IsZero() || j.Due.After(now)):
		return ""
	}
	return QueueWord(j.Queue)
}

// Due selects jobs whose Due has passed.
type Due struct {
	Selector
	// By is the latest Due. Zero: the store's time.
	By time.Time
}

// Selector selects jobs for a worker.
type Selector struct {
	// Pattern is a pattern for the name, as in SQLite's GLOB: * matches any text, ? one character,
	// [a-z] one of these, [^a-z] one of the others. A [ without its ] matches no name, so that a Get
	// with Wait waits until its ctx ends. "": Names is used.
	Pattern string
	// Names contains the exact names, if Pattern is "".
	Names []string
	// Priority, if set, is the exact priority.
	Priority task.Opt[int]
	// Mock also selects jobs with Mock. Off: such jobs are skipped.
	Mock bool
}

// Joiner is an optional part of a [Store]: it creates jobs in transactions of callers.
type Joiner interface {
	// JoinTx runs fn once in t, a transaction of the caller on the database of the store. It neither
	// commits nor rolls back. names are those of the jobs that fn creates. The watchers are called
	// several times within the next half second, since JoinTx does not see the commit.
	//
	// Lock never waits in fn. It returns [ErrUnavailable] if another transaction holds a name: the
	// caller's transaction holds locks that the order of locks does not know, and must not wait.
	//
	//   - Returns [ErrUnsupported] if t belongs to another database, or its statements do not see the
	//     commits before them (any isolation level of PostgreSQL but READ COMMITTED).
	//   - After that error, and those of fn before its first change, t can continue and commit.
	//   - Other errors are those of the database. They may have ended t.
	JoinTx(ctx context.Context, t tx.Tx, names []string, fn func(ctx context.Context, tx Tx) error) error
}

// Inserter is an optional part of a [Store]: it saves new jobs in fewer round trips to a server
// than Single.
type Inserter interface {
	// Insert is Update with one Save of the jobs that draft returns, which must have no ID. now is the
	// time of the transaction. draft must return quickly and may be called more than once. A panic of
	// draft, or a job that Save refuses, rolls everything back.
	Insert(ctx context.Context, draft func(now time.Time) []*Row) error
}

// Taker is an optional part of a [Tx]: it claims simple jobs in one statement.
type Taker interface {
	// Take claims the first jobs that Due would return, at most limit, and returns them after the
	// claim:
	//
	//   - State is RUNNING, and Token is one higher;
	//   - LastRun and Changed are the store's time;
	//   - Attempt is one higher, unless the job was RUNNING;
	//   - if the job was QUEUED, Run is one higher and Scheduled is its NextRun;
	//   - Due is the store's time plus lease, or zero for a lease of 0.
	//
	// It stops before the first job that has a RetryAfter, a Parent or children; rest is then true.
	Take(ctx context.Context, d Due, limit int, lease time.Duration) (jobs []Row, rest bool, err error)
}

// Weigher is an optional part of a [Tx]: it sums up weights without reading the jobs.
type Weigher interface {
	// Weigh returns the number of running jobs of a queue ([State.Runs]) and the sum of their Weight.
	Weigh(ctx context.Context, queue string) (n, weight int64, err error)
}

// Dropper is an optional part of a [Tx]: it deletes a simple job in one statement.
type Dropper interface {
	// Drop deletes the job if it is [Row.Simple], it runs ([State.Runs]), and its Token is token or
	// token is 0. It reports whether it deleted the job.
	Drop(ctx context.Context, id ID, token int64) (bool, error)
}

// HastyLocker is an optional part of a [Tx]. A transaction of a caller or of another program may
// hold a lock for long. A transaction of many changes does not wait for it, nor does one that would
// keep a connection meanwhile.
type HastyLocker interface {
	// LockSoon is Lock that waits no longer than within for each lock. It returns false if another
	// transaction holds one of the names for longer. The transaction can only be rolled back then. In
	// JoinTx it is Lock.
	LockSoon(ctx context.Context, within time.Duration, names ...string) (bool, error)
	// FreeJobs locks and returns jobs as Jobs does, but leaves out those that another transaction has
	// locked.
	FreeJobs(ctx context.Context, ids ...ID) ([]Row, error)
	// FreeDeferrals locks and returns deferrals as Deferrals does, but leaves out those that another
	// transaction has locked.
	FreeDeferrals(ctx context.Context, tasks ...task.ID) ([]Deferral, error)
}
