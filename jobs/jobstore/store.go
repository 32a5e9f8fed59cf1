package jobstore

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Store keeps jobs for any number of processes. It knows no rules: those are in jobs.Service, above
// its transactions. Package jobstest has a case for every sentence here.
//
// All methods are safe for concurrent use, and a ctx bounds every wait. Each returns [ErrClosed]
// after Close. Each returns [ErrUnavailable] if the store gives no answer before ctx ends, or the
// outcome of a commit is unknown.
type Store interface {
	// Update runs fn in a transaction, and returns nil when all of it is on disk. An error of fn
	// rolls it back, and is returned as it is.
	//
	// Transactions are serializable as far as they read the same jobs or lock the same names. fn
	// may run more than once, and may share its commit with others. So fn sets its results at each
	// run, is quick, and has no effect outside. It returns the error of a method of tx; after any
	// error but [ErrNotFound] the transaction cannot commit.
	Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Single is Update for a fn that calls one method of tx, besides Now. It saves trips to a
	// server.
	Single(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// View runs fn, which only reads. It locks no row, and each call of tx sees the commits before
	// it. Save, Delete, ExpireJobs and Lock return [ErrUnsupported].
	View(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Coming returns names of jobs whose Due lies after since and not after the store's time. It
	// returns at most max names, each once. Jobs of queues do not count. A zero since asks for no
	// names.
	Coming(ctx context.Context, since time.Time, max int) (Coming, error)
	// Watch calls wake, from any goroutine, after commits of any process that gave a job a Due, or
	// ended a job of a queue. Saved deferrals and leases of queues count as well.
	//
	// names are the words of the records ([Row.Word], [Deferral.Word], [QueueLease.Word]). nil: any
	// word. A call is a hint: some may be missing, and some needless. wake returns at once. stop
	// ends the calls.
	Watch(wake func(names []string)) (stop func())
	// Close waits for running calls and frees all resources. It is idempotent. Returns the error of
	// ctx if ctx ends first.
	Close(ctx context.Context) error
}

// Coming is the result of [Store].Coming. More: other names are due. Now is the store's time. Next
// is the first Due after Now, zero if there is none.
type Coming struct {
	Names []string
	More  bool
	Now   time.Time
	Next  time.Time
}

// Tx is a transaction of a [Store]. It ends with the function that it was given to. One goroutine
// at a time uses it.
type Tx interface {
	AnswerTx
	LeaseTx
	Finder
	// Now returns the store's time, by which all rules of jobs decide. It does not go backwards
	// within a transaction.
	Now(ctx context.Context) (time.Time, error)
	// Lock locks names until the transaction ends; no other transaction has one of them meanwhile.
	// It is for things without a row, such as a sequence key.
	//
	// Names are 1 to 300 bytes. Names of one call are locked in a fixed order. The caller keeps the
	// order of its calls. The text of a name up to its first space is its kind. All names of a kind
	// belong in one call: a store may lock the whole kind in place of very many names.
	Lock(ctx context.Context, names ...string) error
	// Save writes jobs. A job with an ID replaces the row of that id, which this transaction has
	// locked. A job without an ID is new, and gets its ID, in the order of the call.
	//
	// Returns [ErrNotFound] if no job has an ID. All jobs are checked ([Row.Check]) before one is
	// written. Save keeps no reference to its arguments.
	Save(ctx context.Context, jobs ...*Row) error
	// Delete deletes locked jobs and their Messages. Missing ids are ignored.
	Delete(ctx context.Context, ids ...ID) error
	// ExpireJobs deletes jobs whose Expires is set and not after by, and their Messages: the first
	// ones, at most limit, which is above 0. It skips jobs that another transaction has locked, and
	// returns how many it has deleted.
	ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error)
}

// Finder is the part of a transaction that reads jobs.
//
// Get, Jobs, Due and Line lock the jobs that they return; in a View they do not. Get and Jobs wait
// for jobs that another transaction has locked, and return their new state. Due and Line skip them.
// The other methods lock no row and wait for no transaction. To change a job that they return, read
// it again with Get or Jobs.
type Finder interface {
	// Get returns a job. Returns ErrNotFound if the job does not exist.
	Get(ctx context.Context, id ID) (Row, error)
	// Jobs returns the jobs of these ids, each once, in the order of ids. Missing ones are left out.
	Jobs(ctx context.Context, ids ...ID) ([]Row, error)
	// All returns a page of all jobs.
	All(ctx context.Context, p Page) ([]Row, error)
	// Named returns a page of the jobs of a name.
	Named(ctx context.Context, name string, p Page) ([]Row, error)
	// OfKey returns a page of the jobs of a name and a Key.
	OfKey(ctx context.Context, name, key string, p Page) ([]Row, error)
	// LastOver returns the newest job of a name and a Key that is over ([State.Over]), or nil.
	LastOver(ctx context.Context, name, key string) (*Row, error)
	// OfUniqueKey returns a page of the jobs of a name and a UniqueKey.
	OfUniqueKey(ctx context.Context, name, key string, p Page) ([]Row, error)
	// OfSequence returns a page of the jobs of a sequence key.
	OfSequence(ctx context.Context, key string, p Page) ([]Row, error)
	// OfQueue returns a page of the jobs of a queue.
	OfQueue(ctx context.Context, queue string, p Page) ([]Row, error)
	// Children returns a page of the jobs of a parent.
	Children(ctx context.Context, parent ID, p Page) ([]Row, error)
	// Due returns jobs without a Queue that may be claimed, in the order of Priority, then Due,
	// then ID. It returns at most limit, which is above 0.
	Due(ctx context.Context, d Due, limit int) ([]Row, error)
	// Line returns the jobs in the line of a queue, at most limit, which is above 0. It locks only
	// the returned jobs.
	Line(ctx context.Context, l Line, limit int) ([]Row, error)
	// Messages returns the Message of each of these jobs that has one. It locks nothing.
	Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error)
}

// Page selects a part of a list in the order of ids. An empty name, key or queue, and a parent of
// 0, have no jobs.
type Page struct {
	// States limits the result to jobs of these states. nil: any state.
	States []State
	// After limits the result to ids above this one.
	After ID
	// Limit is the most jobs, the first ones. 0: no limit.
	Limit int
}

// Line selects jobs of a queue whose Due has come.
type Line struct {
	Queue string
	// State is the state of the jobs: QUEUED or RUNNING.
	State State
	// By is the latest Due. Zero: the store's time.
	By time.Time
	// Order is the order of the result.
	Order Order
	// MaxWeight, if set, limits the result to jobs of this Weight or less.
	MaxWeight task.Opt[int64]
	// After limits the result to jobs behind this one in Order, by the Due, Priority and ID given
	// here. The stored job may differ. nil: no limit.
	After *Row
}

// Order is the order in which the jobs of a queue are looked at.
type Order int

// The orders. Equal jobs follow in the order of ID.
const (
	TimeFirst     Order = iota // by Due, then by Priority
	PriorityFirst              // by Priority, then by Due
)

// QueueWord returns the word for jobs of a queue.
func QueueWord(queue string) string { return NoName + queue }

// NoName is the first byte of words that are not names of jobs.
const NoName = "\x1f"

// Word returns the word that a [Store] sends to watchers when the job is saved. "": none.
//
//   - Without a Queue: the name of the job, if it has a Due.
//   - With a Queue: the [QueueWord], also when the job has ended. None while it runs until a later
//     time, as after a renewal.
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

// Due selects jobs whose Due has come.
type Due struct {
	Selector
	// By is the latest Due. Zero: the store's time.
	By time.Time
}

// Selector selects jobs for a worker.
type Selector struct {
	// Pattern is SQLite's GLOB for the name: * is any text, ? one character, [a-z] one of these,
	// [^a-z] one of the others. "": Names is used.
	Pattern string
	// Names are the exact names, if Pattern is "".
	Names []string
	// Priority, if set, is the exact priority.
	Priority task.Opt[int]
	// Mock: jobs with Mock as well. Off: they are passed over.
	Mock bool
}

// Inserter is a [Store] that saves new jobs in fewer trips to a server than Single.
type Inserter interface {
	// Insert is Update with one Save of the jobs that draft returns, which have no ID. now is the
	// time of the transaction. draft is quick, and may be called more than once. A panic of draft,
	// or a job that Save refuses, leaves nothing behind.
	Insert(ctx context.Context, draft func(now time.Time) []*Row) error
}

// Taker is a [Tx] that can claim simple jobs in one step.
type Taker interface {
	// Take claims the first jobs that Due would return, at most limit, and returns them as they are
	// afterwards:
	//
	//   - State is RUNNING, and Token is one more;
	//   - LastRun and Changed are the store's time;
	//   - Attempt is one more, unless the job was RUNNING;
	//   - if it was QUEUED, Run is one more, and Scheduled is its NextRun;
	//   - Due is the store's time plus lease, or zero for a lease of 0.
	//
	// It stops before the first job that has a RetryAfter, a Parent or children: rest is then true.
	Take(ctx context.Context, d Due, limit int, lease time.Duration) (jobs []Row, rest bool, err error)
}

// Weigher is a [Tx] that adds up weights without reading the jobs.
type Weigher interface {
	// Weigh returns how many jobs of a queue run ([State.Runs]), and the sum of their Weight.
	Weigh(ctx context.Context, queue string) (n, weight int64, err error)
}

// Dropper is a [Tx] that can delete a simple job in one step.
type Dropper interface {
	// Drop deletes the job if it is [Row.Simple], it runs ([State.Runs]), and its Token is token or
	// token is 0. It reports whether it did.
	Drop(ctx context.Context, id ID, token int64) (bool, error)
}
