package history

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Errors of this package and of stores.
var (
	// ErrQuery reports a text that is not a query. It is wrapped by a [QueryError].
	ErrQuery = errors.New("history: not a query")
	// ErrNotFound reports that no event about a task is recorded.
	ErrNotFound = errors.New("history: no such task")
	// ErrUnavailable reports that the store could not be used until ctx ended.
	ErrUnavailable = errors.New("history: store unavailable")
	// ErrRefused reports a value that the store never accepts. A repetition does not help.
	ErrRefused = errors.New("history: refused by the store")
	// ErrMalformed reports a stored record that cannot be read, or a cursor that no page returned.
	ErrMalformed = errors.New("history: malformed")
	// ErrClosed reports a call after Close.
	ErrClosed = errors.New("history: closed")
)

// Bounds of the work of one call.
const (
	// MaxPage is the largest number of records in a page.
	MaxPage = 1000
	// MaxExamined is the largest number of index entries that a page or a count examines.
	MaxExamined = 50_000
	// MaxCount limits the result of [Store.Count].
	MaxCount = 10_000
	// MaxDeleted is the largest number of records that one call of [Store.Sweep] deletes.
	MaxDeleted = 1000
	// MaxBuckets is the largest number of rows that [Store.Counts] returns.
	MaxBuckets = 20_000
	// MaxGaps is the largest number of gaps in a page.
	MaxGaps = 20
	// MaxLabels is the largest number of distinct task names, of queues, of error classes and of
	// header names that filters and counts know. Further ones count as [Other].
	MaxLabels = 1000
)

// Other is the name under which filters and counts know a name beyond [MaxLabels].
const Other = "other"

// Store keeps the history of tasks. Its calls may be repeated after any error without harm. All
// methods are safe for concurrent use. Errors are those of this package and ctx's.
type Store interface {
	// Record merges a batch into the stored facts, in one transaction. It returns the latest Batch.Now
	// of all earlier batches, or the zero time. Returns ErrRefused, and stores nothing, if the facts
	// of a task can never be stored: those of the other tasks can, in another batch.
	Record(ctx context.Context, b *Batch) (before time.Time, err error)
	// Page returns the records that match q, without timelines. Returns ErrQuery for a q that the
	// parser would refuse, and ErrMalformed for a wrong cursor.
	Page(ctx context.Context, q Query, o PageOptions) (Page, error)
	// Get returns the record of a task with its timeline, or ErrNotFound.
	Get(ctx context.Context, id task.ID) (Record, error)
	// Count counts the records that match q, up to [MaxCount].
	Count(ctx context.Context, q Query) (Total, error)
	// Counts returns how many entries of timelines were recorded, by their time. Rows are ordered by
	// minute, queue, name and kind. Returns ErrQuery if there are more than [MaxBuckets].
	Counts(ctx context.Context, q CountQuery) ([]Bucket, error)
	// Sweep deletes records that changed before a time, and the oldest of more than most records. It
	// deletes at most [MaxDeleted] records and returns their number. It also deletes counts and gaps
	// of before that time. most 0: any number of records may stay.
	Sweep(ctx context.Context, before time.Time, most int) (deleted int, err error)
}

// Batch holds the facts that a recorder stores at once.
type Batch struct {
	Facts []*Facts  // any number for a task; not changed
	Gap   *Gap      // events that the recorder has missed; nil: no gap
	Now   time.Time // by the recorder's clock: it has heard the events until then
}

// Gap is a time of which events are missing, at least for one recorder.
type Gap struct {
	Since   time.Time `json:"since"`
	Before  time.Time `json:"before"`
	Dropped int64     `json:"dropped,omitempty"` // known number of dropped events; 0: not known
}

// PageOptions selects a part of a list. The zero value selects the beginning.
type PageOptions struct {
	Limit int    // number of records, up to [MaxPage]; 0: 100
	After string // Page.Next of the page before; "": the first page
}

// Page is a part of the records that match a query: the newest changes first. A record that changes
// while a list is read moves to its beginning.
type Page struct {
	Records []Record `json:"records"`
	// Next is the cursor of the next page. "": the list ends here.
	Next string `json:"next,omitempty"`
	// Complete is false if the page ends because [MaxExamined] entries were examined, before Limit
	// records were found. Next continues behind these.
	Complete bool `json:"complete"`
	// Gaps lists the newest times of which events are missing, within the time of the query. A record
	// that changed in such a time may be missing or out of date.
	Gaps []Gap `json:"gaps,omitempty"`
	// Query is the query with the times for which it was answered.
	Query Query `json:"query"`
}

// Total is the result of a count.
type Total struct {
	N int `json:"n"`
	// AtLeast reports that there may be more: the count has reached [MaxCount], or [MaxExamined]
	// entries were examined.
	AtLeast bool `json:"at_least"`
}

// CountQuery selects counts. The zero value counts all entries by kind.
type CountQuery struct {
	Since, Before time.Time // zero: no limit; cut to minutes
	Queue, Name   string    // "": all

	PerMinute, PerQueue, PerName bool // parts of the result, beside the kind
}

// Bucket counts entries of timelines.
type Bucket struct {
	Minute time.Time `json:"minute,omitzero"` // zero unless PerMinute
	Queue  string    `json:"queue,omitempty"` // "" unless PerQueue
	Name   string    `json:"name,omitempty"`  // "" unless PerName
	// Kind is KindSent, KindStarted, or a kind that ends an attempt.
	Kind Kind  `json:"kind"`
	N    int64 `json:"n"`
	// Wait is the sum of Record.Wait at the starts; of KindStarted only. A larger sum than the longest
	// duration, 292 years, is the longest duration.
	Wait time.Duration `json:"wait,omitempty"`
	// Run is the sum of the run times, with the same limit; of kinds that end an attempt only.
	Run time.Duration `json:"run,omitempty"`
}

// Counted reports whether stores count entries of kind k: those of KindSent, KindStarted and the
// kinds that end an attempt.
func (k Kind) Counted() bool {
	return k != KindReceived && k != KindProgress && k != KindAwaiting
}
