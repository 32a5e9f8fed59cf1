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

// before reports whether c is older than o: its time of change is earlier, or equal with a smaller
// number. A list begins with the newest change, so the record at c comes after the one at o.
func (c Cursor) before(o Cursor) bool {
	return c.Changed.Before(o.Changed) || c.Changed.Equal(o.Changed) && c.Number < o.Number
}

// Check returns nil if [Parse] accepts the text of q, and otherwise an error that wraps ErrQuery.
// Adapters check queries with it.
func (q Query) Check() error {
	_, err := Parse(q.String())
	return err
}

// Check returns ErrMalformed if an element of b.Facts is nil or has no valid id, otherwise nil.
func (b *Batch) Check() error {
	for _, f := range b.Facts {
		if f == nil || task.ID(f.ID).Check() != nil {
			return fmt.Errorf("%w: a batch with facts of no task", ErrMalformed)
		}
	}
	return nil
}

// Merged returns the facts of b, merged to one element for each task, in the order of their first
// elements. It changes neither b nor its facts.
func (b *Batch) Merged() []*Facts {
	byID := make(map[task.ID]*Facts, len(b.Facts))
	all := make([]*Facts, 0, len(b.Facts))
	for _, f := range b.Facts {
		if have, ok := byID[f.ID]; ok {
			have.Merge(f)
			continue
		}
		first := *f // Merge leaves the entries of f unchanged
		byID[f.ID] = &first
		all = append(all, &first)
	}
	return all
}

// Selects reports whether b, one stored count, is within the times of q and of its Queue and Name.
// For adapters.
func (q CountQuery) Selects(b *Bucket) bool {
	return !b.Minute.Before(q.Since.Truncate(time.Minute)) && (q.Before.IsZero() || b.Minute.Before(q.Before)) &&
		(q.Queue == "" || q.Queue == b.Queue) && (q.Name == "" || q.Name == b.Name)
}

// Row returns a copy of b in which the parts that q does not ask for are zero: Minute, Queue or
// Name. Adapters add up the rows that are then equal.
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

// Add adds the numbers of o to those of b, for adapters: N, Wait and Run. A sum of times stops at
// the longest duration: the clocks of nodes may differ by years.
func (b *Bucket) Add(o *Bucket) {
	sum := func(a, b time.Duration) time.Duration {
		if a > math.MaxInt64-b {
			return math.MaxInt64
		}
		return a + b
	}
	b.N, b.Wait, b.Run = b.N+o.N, sum(b.Wait, o.Wait), sum(b.Run, o.Run)
}

// TooMany returns the error that Counts returns for more than [MaxBuckets] rows. It wraps ErrQuery.
// For adapters.
func TooMany() error {
	return fmt.Errorf("%w: more than %d counts; choose a shorter time or fewer parts", ErrQuery, MaxBuckets)
}

// gapJoint is the largest time between two gaps that become one.
const gapJoint = time.Second

// Joins reports whether o begins within g, or at most a second after its end. Adapters then store
// both as one gap, see [Gap.Join].
func (g Gap) Joins(o Gap) bool {
	return !o.Since.Before(g.Since) && !o.Since.After(g.Before.Add(gapJoint))
}

// Join returns one gap that covers g and o, which begins with g, and has the sum of their Dropped.
// For adapters.
func (g Gap) Join(o Gap) Gap {
	return Gap{Since: g.Since, Before: latest(g.Before, o.Before), Dropped: g.Dropped + o.Dropped}
}
