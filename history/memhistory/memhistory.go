// Package memhistory keeps a history of tasks in the memory of one process. It serves tests and
// programs of one process. It is bounded, and ends with its process.
package memhistory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultMax is the default of Config.Max.
const DefaultMax = 10_000

const (
	maxGaps    = 1000
	maxBuckets = 100_000
)

// Config holds the settings of [New]. The zero value is usable.
type Config struct {
	// Max is the number of records. Beyond it those with the oldest changes are deleted. 0:
	// [DefaultMax], 10,000. It must not exceed [history.MaxExamined], since a query looks at all.
	Max int
}

// Store is a history in memory. Make one with [New]. It needs no Close. Safe for concurrent use.
type Store struct {
	max int

	mu      sync.Mutex
	records map[task.ID]*item
	number  int64 // of the newest item
	gaps    []history.Gap
	buckets map[bucket]*history.Bucket
	now     time.Time
}

var _ history.Store = (*Store)(nil)

// item is a stored task.
type item struct {
	number int64
	facts  *history.Facts
	record history.Record // of facts
}

// bucket identifies a count.
type bucket struct {
	minute      int64
	queue, name string
	kind        history.Kind
}

// New makes a Store. Returns an error if c.Max is negative or too large.
func New(c Config) (*Store, error) {
	if c.Max < 0 || c.Max > history.MaxExamined {
		return nil, fmt.Errorf("memhistory: Max is %d, want 0 to %d", c.Max, history.MaxExamined)
	}
	return &Store{max: cmp.Or(c.Max, DefaultMax), records: make(map[task.ID]*item), buckets: make(map[bucket]*history.Bucket)}, nil
}

// Record implements [history.Store]: it merges the facts into the records and adds the gap. Beyond
// Config.Max it deletes the records with the oldest changes. It returns the latest Batch.Now of
// earlier calls. Returns ctx's error if ctx has ended, and ErrMalformed for facts without a valid
// id. It takes s.mu.
func (s *Store) Record(ctx context.Context, b *history.Batch) (time.Time, error) {
	if err := cmp.Or(ctx.Err(), b.Check()); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range b.Merged() {
		s.merge(f)
	}
	if len(s.records) > s.max {
		s.sweep(time.Time{}, s.max, len(s.records))
	}
	if b.Gap != nil {
		s.addGap(*b.Gap)
	}
	before := s.now
	if b.Now.After(before) {
		s.now = b.Now
	}
	return before, nil
}

// addGap adds g to s.gaps, which are in the order of their beginnings, or joins it to the newest
// gap. It keeps the newest maxGaps. Call it with s.mu held.
func (s *Store) addGap(g history.Gap) {
	if n := len(s.gaps); n > 0 && s.gaps[n-1].Joins(g) {
		s.gaps[n-1] = s.gaps[n-1].Join(g)
		return
	}
	s.gaps = append(s.gaps, g)
	slices.SortStableFunc(s.gaps, func(a, b history.Gap) int { return a.Since.Compare(b.Since) })
	s.gaps = s.gaps[max(0, len(s.gaps)-maxGaps):]
}

// merge adds facts to the record of their task, which it makes if it is missing, and to the counts.
// Call it with s.mu held.
func (s *Store) merge(f *history.Facts) {
	i, ok := s.records[f.ID]
	if !ok {
		s.number++
		i = &item{number: s.number, facts: &history.Facts{ID: f.ID}}
		s.records[f.ID] = i
	}
	old := *i.facts
	if !i.facts.Merge(f) {
		return
	}
	i.record = i.facts.Summary()
	for _, b := range i.facts.Buckets(&old) {
		key := bucket{b.Minute.Unix(), b.Queue, b.Name, b.Kind}
		if sum, ok := s.buckets[key]; ok {
			sum.Add(&b)
		} else if len(s.buckets) < maxBuckets {
			s.buckets[key] = &b
		}
	}
}

// list returns the items for which match returns true, the newest change first. Call it with s.mu
// held.
func (s *Store) list(match func(i *item) bool) []*item {
	var found []*item
	for _, i := range s.records {
		if match(i) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b *item) int {
		return cmp.Or(b.record.Changed.Compare(a.record.Changed), cmp.Compare(b.number, a.number))
	})
	return found
}

// Page implements [history.Store]: it returns the next records that match q, the newest change
// first. It examines all records, so that a page is always complete. Returns ctx's error if ctx has
// ended, ErrQuery for an invalid query or limit, and ErrMalformed for a wrong cursor. It takes
// s.mu.
func (s *Store) Page(ctx context.Context, q history.Query, o history.PageOptions) (history.Page, error) {
	q = q.At(time.Now())
	limit, at, err := o.Begin(q)
	if err := cmp.Or(ctx.Err(), q.Check(), err); err != nil {
		return history.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.list(func(i *item) bool {
		c := i.record.Changed.Compare(at.Changed)
		return (c < 0 || c == 0 && i.number < at.Number) && q.Match(&i.record)
	})
	p := history.Page{Records: []history.Record{}, Complete: true, Gaps: s.gapsIn(q.Span()), Query: q}
	for n, i := range found[:min(len(found), limit)] {
		r := i.facts.Summary() // a copy, which the caller may change
		if p.Records = append(p.Records, r); n == limit-1 && len(found) > limit {
			p.Next = history.Cursor{Changed: r.Changed, Number: i.number}.String()
		}
	}
	return p, nil
}

// gapsIn returns the newest gaps that overlap the time from since until before, the newest first,
// up to MaxGaps. If before is zero the time has no end. Call it with s.mu held.
func (s *Store) gapsIn(since, before time.Time) []history.Gap {
	var found []history.Gap
	for _, g := range s.gaps {
		if !g.Before.Before(since) && (before.IsZero() || g.Since.Before(before)) {
			found = append(found, g)
		}
	}
	slices.Reverse(found)
	return found[:min(len(found), history.MaxGaps)]
}

// Get implements [history.Store]: it returns a copy of the record of a task, with its timeline.
// Returns ErrNotFound if no event of the task was recorded, task.ErrBadID for an invalid id, and
// ctx's error if ctx has ended. It takes s.mu.
func (s *Store) Get(ctx context.Context, id task.ID) (history.Record, error) {
	if err := cmp.Or(ctx.Err(), id.Check()); err != nil {
		return history.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.records[id]
	if !ok {
		return history.Record{}, history.ErrNotFound
	}
	return i.facts.Record(), nil // a copy, which the caller may change
}

// Count implements [history.Store]: it counts the records that match q, up to MaxCount. Returns
// ErrQuery for an invalid query, and ctx's error if ctx has ended. It takes s.mu.
func (s *Store) Count(ctx context.Context, q history.Query) (history.Total, error) {
	q = q.At(time.Now())
	if err := cmp.Or(ctx.Err(), q.Check()); err != nil {
		return history.Total{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list(func(i *item) bool { return q.Match(&i.record) }))
	return history.Total{N: min(n, history.MaxCount), AtLeast: n > history.MaxCount}, nil
}

// Counts implements [history.Store]: it adds up the counts that q selects to rows with the parts
// that q asks for. Returns ErrQuery for more than MaxBuckets rows, and ctx's error if ctx has
// ended. It takes s.mu.
func (s *Store) Counts(ctx context.Context, q history.CountQuery) ([]history.Bucket, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := make(map[bucket]*history.Bucket)
	for _, b := range s.buckets {
		if !q.Selects(b) {
			continue
		}
		one := q.Row(b)
		if key := (bucket{one.Minute.Unix(), one.Queue, one.Name, one.Kind}); sums[key] == nil {
			sums[key] = &one
		} else {
			sums[key].Add(&one)
		}
	}
	if len(sums) > history.MaxBuckets {
		return nil, history.TooMany()
	}
	rows := make([]history.Bucket, 0, len(sums))
	for _, b := range sums {
		rows = append(rows, *b)
	}
	slices.SortFunc(rows, func(a, b history.Bucket) int {
		return cmp.Or(a.Minute.Compare(b.Minute), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return rows, nil
}

// Sweep implements [history.Store]: it deletes records, counts and gaps from before a time, and the
// oldest of more than most records. It deletes up to MaxDeleted records and returns their number.
// Returns ctx's error if ctx has ended. It takes s.mu.
func (s *Store) Sweep(ctx context.Context, before time.Time, most int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = slices.DeleteFunc(s.gaps, func(g history.Gap) bool { return g.Before.Before(before) })
	for key, b := range s.buckets {
		if b.Minute.Before(before.Truncate(time.Minute)) {
			delete(s.buckets, key)
		}
	}
	return s.sweep(before, most, history.MaxDeleted), nil
}

// sweep deletes the records with the oldest changes: those that changed before the given time, and
// those beyond most unless it is 0. It deletes up to limit records and returns their number. Call
// it with s.mu held.
func (s *Store) sweep(before time.Time, most, limit int) (deleted int) {
	all := s.list(func(*item) bool { return true })
	for n := len(all) - 1; n >= 0 && deleted < limit; n-- {
		if old := all[n].record.Changed.Before(before); !old && (most == 0 || n < most) {
			break
		}
		delete(s.records, all[n].record.ID)
		deleted++
	}
	return deleted
}
