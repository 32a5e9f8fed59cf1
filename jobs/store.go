package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Store keeps jobs, for any number of processes. It knows nothing of the rules of their life: those are in [Service], in Go, above its
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
	// the words of these jobs ([Job.Word]), and of deferrals and leases of queues (package jobstore); nil: any.
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
	jobstore.AnswerTx
	jobstore.LeaseTx
	// Now is the store's time, by which everything about jobs is judged. It does not go backwards within a transaction.
	Now(ctx context.Context) (time.Time, error)
	// Lock has this transaction be the only one that has locked any of these names until it ends: for what no row stands for yet,
	// such as a sequence key. Names are 1 to 300 bytes. To lock in the same order everywhere is the caller's business; names of one call are
	// locked in a fixed one.
	Lock(ctx context.Context, names ...string) error
	// Get returns a job and locks it, or ErrNotFound. In a View it locks nothing.
	Get(ctx context.Context, id ID) (Row, error)
	// Find returns the jobs that q asks for and locks them. In a View it locks nothing.
	Find(ctx context.Context, q Query) ([]Row, error)
	// Save writes jobs: one with an ID over the job of that id, which is there and locked by this transaction; one without becomes a new one, and is given
	// its ID, in the order of the call. [ErrNotFound] says that there is no job of an ID. Jobs are checked ([Job.Check]) before any is written. It keeps nothing of what it was handed.
	Save(ctx context.Context, jobs ...*Row) error
	// Messages returns the Message of each of these jobs that was made with one. It locks nothing.
	Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error)
	// Delete removes jobs that are locked, and their Messages. Missing ids are ignored.
	Delete(ctx context.Context, ids ...ID) error
}

// Query asks for jobs. All that is set must hold of a job.
type Query struct {
	// After: only ids above this one.
	After ID
	// IDs, when not nil, names them.
	IDs []ID
	// Name, when not "", is theirs, exactly.
	Name string
	// States, when not nil: one of these.
	States []State
	// SequenceKey, Parent, Queue, UniqueKey and Key, when not zero, are theirs. UniqueKey and Key come with a Name.
	SequenceKey string
	Parent      ID
	Queue       string
	UniqueKey   string
	Key         string
	// Expired, when not zero: their Expires is not zero and not after it. The answer is then in the order of Expires, then of ids.
	Expired time.Time
	// Limit is how many there may be in the answer, the first ones. 0: no limit.
	Limit int

	// Due, when not nil, asks for jobs without a Queue that may be handed out; of the fields above only Limit, which is not 0, then counts. Jobs that another
	// transaction has locked are passed over; the answer is in the order of Priority, then Due, then ID. Else, and without Line and Expired, the answer is
	// in the order of ids, and locked jobs are waited for.
	Due *Due
	// Line, when not nil, asks for what stands in the line of a queue; of the fields above only Limit, which is not 0, then counts. Jobs that another
	// transaction has locked are passed over; those that are not in the answer are not locked.
	Line *Line
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
func QueueWord(queue string) string { return wordOfQueue + queue }

// wordOfQueue begins the words that are no names of jobs, those of jobstore too.
const wordOfQueue = "\x1f"

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
	// Take has the first jobs that Find would answer for d, at most limit of them, run: State RUNNING, LastRun and Changed the store's time, Token one
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
	// Drop deletes the job if it is [Job.Simple], its state [State.Runs], and its Token is token or token is 0. It answers whether it did.
	Drop(ctx context.Context, id ID, token int64) (bool, error)
}
