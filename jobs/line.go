package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// line reads what stands in the line of a queue and is due, page by page.
type line struct {
	queue string
	order Order
	by    time.Time
	find  func(ctx context.Context, q Line, limit int) ([]Row, error)
}

// each calls yield for the jobs in order until it returns false. most is asked before each page, and so is room: how many jobs are wanted at most. Jobs that yield
// is given are its own.
func (l *line) each(ctx context.Context, most func() task.Opt[int64], room func() int, yield func(*Row) bool) error {
	var after *Row
	for size := linePage; ; size = min(2*size, linePages) {
		n := min(size, room())
		if n <= 0 {
			return nil
		}
		found, err := l.find(ctx, Line{Queue: l.queue, State: Queued, By: l.by, Order: l.order, MaxWeight: most(), After: after}, n)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			after = found[len(found)-1].place()
		}
		for i := range found {
			if !yield(&found[i]) {
				return nil
			}
		}
		if len(found) < n {
			return nil
		}
	}
}

// place is as much of a job as tells where in a line it stands.
func (j *Row) place() *Row { return &Row{Job: Job{ID: j.ID, Priority: j.Priority}, Due: j.Due} }

// weigh returns how many jobs of a queue run, and what they weigh.
func weigh(ctx context.Context, tx Tx, queue string) (n, weight int64, err error) {
	if w, ok := tx.(Weigher); ok {
		return w.Weigh(ctx, queue)
	}
	after := ID(0)
	for {
		found, err := tx.OfQueue(ctx, queue, Page{States: []State{Running, RunQueued}, After: after, Limit: rosterPage})
		if err != nil {
			return 0, 0, err
		}
		for i := range found {
			n, weight = n+1, weight+found[i].Weight
		}
		if len(found) < rosterPage {
			return n, weight, nil
		}
		after = found[len(found)-1].ID
	}
}

const (
	linePage  = 64   // jobs of the first page
	linePages = 1000 // and of those of a long line
)

// rosterPage is how many jobs that run are read at a time.
const rosterPage = 1000
