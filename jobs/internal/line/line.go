package line

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Line reads what stands in the line of a queue and is due, page by page.
type Line struct {
	Queue string
	Order jobstore.Order
	By    time.Time
	Find  func(ctx context.Context, q jobstore.Line, limit int) ([]jobstore.Row, error)
}

// Each calls yield for the jobs in order until it returns false. most is asked before each page, and so is room: how many jobs are wanted at most. Jobs that yield
// is given are its own.
func (l *Line) Each(ctx context.Context, most func() task.Opt[int64], room func() int, yield func(*jobstore.Row) bool) error {
	var after *jobstore.Row
	for size := linePage; ; size = min(2*size, LinePages) {
		n := min(size, room())
		if n <= 0 {
			return nil
		}
		found, err := l.Find(ctx, jobstore.Line{Queue: l.Queue, State: jobstore.Queued, By: l.By, Order: l.Order, MaxWeight: most(), After: after}, n)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			after = place(&found[len(found)-1])
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
func place(j *jobstore.Row) *jobstore.Row {
	return &jobstore.Row{Job: jobstore.Job{ID: j.ID, Priority: j.Priority}, Due: j.Due}
}

// Weigh returns how many jobs of a queue run, and what they weigh.
func Weigh(ctx context.Context, tx jobstore.Tx, queue string) (n, weight int64, err error) {
	if w, ok := tx.(jobstore.Weigher); ok {
		return w.Weigh(ctx, queue)
	}
	after := jobstore.ID(0)
	for {
		found, err := tx.OfQueue(ctx, queue, jobstore.Page{States: []jobstore.State{jobstore.Running, jobstore.RunQueued}, After: after, Limit: RosterPage})
		if err != nil {
			return 0, 0, err
		}
		for i := range found {
			n, weight = n+1, weight+found[i].Weight
		}
		if len(found) < RosterPage {
			return n, weight, nil
		}
		after = found[len(found)-1].ID
	}
}

const (
	linePage  = 64   // jobs of the first page
	LinePages = 1000 // and of those of a long line
)

// RosterPage is how many jobs that run are read at a time.
const RosterPage = 1000
