package history

import (
	"fmt"
	"math"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// DefaultPage is the default of PageOptions.Limit.
const DefaultPage = 100

// Cursor is a position in a list, for adapters: behind the record with this time of change and
// number. Numbers tell records with the same time apart.
type Cursor struct {
	Changed time.Time
	Number  int64
}

// String returns the text of c for Page.Next.
func (c Cursor) String() string { return fmt.Sprintf("%d.%d", c.Changed.UnixMilli(), c.Number) }

// Begin returns the number of records and the position with which a page begins, for adapters. The
// position is o.After, or the end of the time of q. Call it with absolute times in q. Returns
// ErrMalformed for a wrong cursor, and ErrQuery for a negative Limit or one above MaxPage.
func (o PageOptions) Begin(q Query) (limit int, at Cursor, err error) {
	at = Cursor{time.UnixMilli(math.MaxInt64 >> 16), math.MaxInt64}
	if _, before := q.Span(); !before.IsZero() {
		at = Cursor{before, math.MinInt64}
	}
	if limit = o.Limit; limit == 0 {
		limit = DefaultPage
	}
	if limit < 0 || limit > MaxPage {
		return 0, at, fmt.Errorf("%w: a page of %d records, want 1 to %d", ErrQuery, limit, MaxPage)
	}
	if o.After == "" {
		return limit, at, nil
	}
	var ms, number int64
	if n, err := fmt.Sscanf(o.After, "%d.%d", &ms, &number); n != 2 || err != nil {
		return 0, at, fmt.Errorf("%w: the cursor %.40q", ErrMalformed, o.After)
	}
	if after := (Cursor{time.UnixMilli(ms), number}); after.before(at) {
		at = after
	}
	return limit, at, nil
}

// before reports whether a record at c comes later in a list, where the newest change is first.
func (c Cursor) before(o Cursor) bool {
	return c.Changed.Before(o.Changed) || c.Changed.Equal(o.Changed) && c.Number < o.Number
}

// Check returns an error that wraps ErrQuery if [Parse] would refuse the text of q. Adapters check
// queries with it.
func (q Query) Check() error {
	_, err := Parse(q.String())
	return err
}

// Check returns ErrMalformed if a batch has facts without a valid id.
func (b *Batch) Check() error {
	for _, f := range b.Facts {
		if f == nil || task.ID(f.ID).Check() != nil {
			return fmt.Errorf("%w: a batch with facts of no task", ErrMalformed)
		}
	}
	return nil
}

// Merged returns the facts of b with one element for each task, in the order of their first
// elements. It changes neither b nor its facts.
func (b *Batch) Merged() []*Facts {
	byID := make(map[task.ID]*Facts, len(b.Facts))
	all := make([]*Facts, 0, len(b.Facts))
	for _, f := range b.Facts {
		have, ok := byID[f.ID]
		if !ok {
			have = &Facts{ID: f.ID}
			byID[f.ID] = have
			all = append(all, have)
		}
		have.Merge(f)
	}
	return all
}

// Selects reports whether q counts b, for adapters.
func (q CountQuery) Selects(b *Bucket) bool {
	return !b.Minute.Before(q.Since.Truncate(time.Minute)) && (q.Before.IsZero() || b.Minute.Before(q.Before)) &&
		(q.Queue == "" || q.Queue == b.Queue) && (q.Name == "" || q.Name == b.Name)
}

// Row returns b without the fields that q does not ask for, for adapters.
func (q CountQuery) Row(b *Bucket) Bucket {
	one := *b
	if !q.PerMinute {
		one.Minute = time.Time{}
	}
	if !q.PerQueue {
		one.Queue = ""
	}
	if !q.PerName {
		one.Name = ""
	}
	return one
}

// Add adds the counts of o to those of b, for adapters. A sum of times stops at the longest
// duration: the clocks of nodes may differ by years.
func (b *Bucket) Add(o *Bucket) {
	sum := func(a, b time.Duration) time.Duration {
		if a > math.MaxInt64-b {
			return math.MaxInt64
		}
		return a + b
	}
	b.N, b.Wait, b.Run = b.N+o.N, sum(b.Wait, o.Wait), sum(b.Run, o.Run)
}

// TooMany returns the error of Counts for more than [MaxBuckets] rows, for adapters.
func TooMany() error {
	return fmt.Errorf("%w: more than %d counts; choose a shorter time or fewer parts", ErrQuery, MaxBuckets)
}

// gapJoint is the largest time between two gaps that become one.
const gapJoint = time.Second

// Joins reports whether o continues g, so that a store makes one gap of both, for adapters.
func (g Gap) Joins(o Gap) bool {
	return !o.Since.Before(g.Since) && !o.Since.After(g.Before.Add(gapJoint))
}

// Join returns the gap of both times, for adapters.
func (g Gap) Join(o Gap) Gap {
	return Gap{Since: g.Since, Before: latest(g.Before, o.Before), Dropped: g.Dropped + o.Dropped}
}
