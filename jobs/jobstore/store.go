package jobstore

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Store keeps jobs, for any number of processes. It knows nothing of the rules of their life: those are in jobs.Service, in Go, above its
// transactions. The package jobstest holds a case for every sentence here.
//
// All methods may be called from any goroutine; a ctx bounds every wait. After Close all of them return [ErrClosed]. A store that
// gives no answer until ctx ends, or that cannot say what became of a commit, is [ErrUnavailable].
type Store interface {
	// Update runs fn in a transaction, and returns nil when all of it is on disk. An error of fn undoes all of it and is
	// returned as it is. Transactions have the effect of one after the other as far as they look at the same jobs or lock the same names.
	// fn may run more than once, and may share its commit with others: it sets what it returns at each run, is quick, and has no
	// effect outside. An error of a method of tx is returned by fn; all but [ErrNotFound] spoil the transaction.
	Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Single is Update for a fn that calls one method of tx, Now aside, which saves trips to a server.
	Single(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// View runs fn, which only reads; no row is locked, and each call of tx sees what was on disk before it. Save, Delete and Lock are
	// [ErrUnsupported] there.
	View(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Coming returns the names of jobs whose Due lies after since and not after now, at most max of them and each once; more says
	// that there are others. now is the store's time, and next the first Due after it, zero if there is none. since zero looks for no
	// names. Jobs of queues do not count.
	Coming(ctx context.Context, since time.Time, max int) (Coming, error)
	// Watch calls wake, from any goroutine, after the commit of transactions that gave jobs a Due, or ended jobs of a queue, by any process. names are
	// the words of these jobs ([Row.Word]), and of deferrals and leases of queues; nil: any.
	// It is a hint: some calls may be missing, and some needless. wake returns at once. stop ends it.
	Watch(wake func(names []string)) (stop func())
	// Close waits for what is under way and gives up what the store holds. It is idempotent. When ctx ends before, its error is returned.
	Close(ctx context.Context) error
}

// Coming is the answer of [Store] to the question of what has become due.
type Coming struct {
	Names []string
	More  bool
	Now   time.Time
	Next  time.Time
}

// Tx is a transaction of a [Store]. It ends with the function that it was given to, and only one goroutine uses it at a time.
type Tx interface {
	AnswerTx
	LeaseTx
	Finder
	// Now is the store's time, by which everything about jobs is judged. It does not go backwards within a transaction.
	Now(ctx context.Context) (time.Time, error)
	// Lock has this transaction be the only one that has locked any of these names until it ends: for what no row stands for yet,
	// such as a sequence key. Names are 1 to 300 bytes. To lock in the same order everywhere is the caller's business; names of one call are
	// locked in a fixed one.
	Lock(ctx context.Context, names ...string) error
	// Save writes jobs: one with an ID over the job of that id, which is there and locked by this transaction; one without becomes a new one, and is given
	// its ID, in the order of the call. [ErrNotFound] says that there is no job of an ID. Jobs are checked ([Row.Check]) before any is written. It keeps nothing of what it was handed.
	Save(ctx context.Context, jobs ...*Row) error
	// Delete removes jobs that are locked, and their Messages. Missing ids are ignored.
	Delete(ctx context.Context, ids ...ID) error
}

// Finder is the part of a transaction that reads jobs and locks them. In a View it locks nothing.
//
// It waits for jobs that another transaction has locked, and judges them by what they have become.
// Due and Line pass over them.
type Finder interface {
	// Get returns a job, or ErrNotFound.
	Get(ctx context.Context, id ID) (Row, error)
	// Jobs returns the jobs of these ids, each once, in the order of ids. Missing ones are left out.
	Jobs(ctx context.Context, ids ...ID) ([]Row, error)
	// All returns a page of all jobs.
	All(ctx context.Context, p Page) ([]Row, error)
	// Named returns a page of the jobs of a name.
	Named(ctx context.Context, name string, p Page) ([]Row, error)
	// OfKey returns a page of the jobs of a name and a Key.
	OfKey(ctx context.Context, name, key string, p Page) ([]Row, error)
	// OfUniqueKey returns a page of the jobs of a name and a UniqueKey.
	OfUniqueKey(ctx context.Context, name, key string, p Page) ([]Row, error)
	// OfSequence returns a page of the jobs of a sequence key.
	OfSequence(ctx context.Context, key string, p Page) ([]Row, error)
	// OfQueue returns a page of the jobs of a queue.
	OfQueue(ctx context.Context, queue string, p Page) ([]Row, error)
	// Children returns a page of the jobs of a parent.
	Children(ctx context.Context, parent ID, p Page) ([]Row, error)
	// Expired returns the jobs whose Expires is set and not after by, in the order of Expires, then
	// of ids, at most limit. 0: all.
	Expired(ctx context.Context, by time.Time, limit int) ([]Row, error)
	// Due returns jobs without a Queue that may be handed out, in the order of Priority, then Due,
	// then ID, at most limit, which is above 0.
	Due(ctx context.Context, d Due, limit int) ([]Row, error)
	// Line returns what stands in the line of a queue, at most limit, which is above 0. Jobs that
	// are not in the answer are not locked.
	Line(ctx context.Context, l Line, limit int) ([]Row, error)
	// Messages returns the Message of each of these jobs that was made with one. It locks nothing.
	Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error)
}

// Page is a part of an answer that is in the order of ids. An empty name, key or queue, and a
// parent of 0, have no jobs.
type Page struct {
	// States, when not nil: jobs of one of these.
	States []State
	// After: only ids above this one.
	After ID
	// Limit is how many there may be, the first ones. 0: no limit.
	Limit int
}

// Line asks for jobs of a queue whose Due has come.
type Line struct {
	Queue string
	// State is theirs: QUEUED or RUNNING.
	State State
	// By is the latest Due. Zero: the store's time.
	By time.Time
	// Order is that of the answer.
	Order Order
	// MaxWeight, if set: of this Weight or less.
	MaxWeight task.Opt[int64]
	// After, when not nil: those that come after this job in Order, by its Due, Priority and ID as they are here, wherever it stands now.
	After *Row
}

// Order is the order in which a queue's jobs are looked at.
type Order int

// The orders. What is equal so far goes by ID.
const (
	TimeFirst     Order = iota // by Due, then by Priority
	PriorityFirst              // by Priority, then by Due
)

// QueueWord is the word by which [Store] tells watchers of jobs of a queue.
func QueueWord(queue string) string { return WordOfQueue + queue }

// WordOfQueue begins the word of a queue ([QueueWord]), and all words that are no names of jobs.
const WordOfQueue = "\x1f"

// Word is the word by which a [Store] tells watchers that the job was saved; "": it tells nothing. It is the name of a job with a Due. Of a job
// with a Queue it is the [QueueWord], also when it has ended and made room; there is none while it runs until a time ahead, as under a lease that was renewed.
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

// Due asks for jobs whose Due has come.
type Due struct {
	Selector
	// By is the latest Due. Zero: the store's time.
	By time.Time
}

// Selector is what a worker asks for.
type Selector struct {
	// Pattern is SQLite's GLOB for the name: * is any text, ? one character, [a-z] one of these, [^a-z] one of the others. "": Names
	// says which.
	Pattern string
	// Names, where Pattern is "", are the names, exactly.
	Names []string
	// Priority, if set, is the job's, exactly.
	Priority task.Opt[int]
	// Mock: jobs with Mock too, which are passed over otherwise.
	Mock bool
}

// Inserter is a [Store] that saves new jobs in fewer trips to a server than Single takes.
type Inserter interface {
	// Insert is Update with one Save of the jobs that draft makes, none of which has an ID. draft is given the Now of the transaction; it is quick, and
	// may be called more than once. A panic of draft, or a job that Save would not take, leaves nothing behind.
	Insert(ctx context.Context, draft func(now time.Time) []*Row) error
}

// Taker is a [Tx] that can hand out the common jobs in one step.
type Taker interface {
	// Take has the first jobs that Due would answer, at most limit of them, run: State RUNNING, LastRun and Changed the store's time, Token one
	// more, Attempt one more of those that were not RUNNING, and, of those that were QUEUED, Run one more and Scheduled their NextRun; Due the store's time and lease, or zero for a lease
	// of 0. It stops before the first job that has a RetryAfter, a Parent or children: rest is then true. The answer is
	// what the jobs are afterwards.
	Take(ctx context.Context, d Due, limit int, lease time.Duration) (jobs []Row, rest bool, err error)
}

// Weigher is a [Tx] that adds up what runs without reading it.
type Weigher interface {
	// Weigh returns how many jobs of a queue have a State that runs ([State.Runs]), and the sum of their Weight.
	Weigh(ctx context.Context, queue string) (n, weight int64, err error)
}

// Dropper is a [Tx] that can end the common job in one step.
type Dropper interface {
	// Drop deletes the job if it is [Row.Simple], its state [State.Runs], and its Token is token or token is 0. It answers whether it did.
	Drop(ctx context.Context, id ID, token int64) (bool, error)
}
