package line

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Line reads the due jobs of a queue in order, page by page.
type Line struct {
	Queue string
	Order jobstore.Order
	By    time.Time // the latest Due
	// Find reads one page, as jobstore.Finder.Line does.
	Find func(ctx context.Context, q jobstore.Line, limit int) ([]jobstore.Row, error)
}

// Each reads the due QUEUED jobs page by page and calls yield for each, in order. It ends when
// yield returns false, when no job is left, or when wanted returns 0 or less. yield may keep its
// job. Returns the error of Find.
//
// Before each page it calls wanted, which returns the largest number of jobs to read, and most,
// which returns the largest weight of a job. Heavier jobs are left out; unset means any weight.
func (l *Line) Each(ctx context.Context, most func() task.Opt[int64], wanted func() int, yield func(*jobstore.Row) bool) error {
	var after *jobstore.Row
	size := page.Size{Bytes: pageBytes, First: linePage, Most: LinePages}
	for {
		n := min(size.Limit(), wanted())
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
		size.Read(len(found), page.Rows(found))
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

// place returns a row with only the fields that determine the place of a job in the order of a
// queue: ID, Priority and Due.
func place(j *jobstore.Row) *jobstore.Row {
	return &jobstore.Row{Job: jobstore.Job{ID: j.ID, Priority: j.Priority}, Due: j.Due}
}

// Weigh returns the number of running jobs of a queue and the sum of their weights in thousandths.
// Jobs that await an answer also run. If tx is a Weigher, it returns the results of its Weigh.
// Otherwise it reads all these jobs in pages. Returns errors of the store; both numbers are then
// 0.
func Weigh(ctx context.Context, tx jobstore.Tx, queue string) (n, weight int64, err error) {
	if w, ok := capability.As[jobstore.Weigher](tx); ok {
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
	linePage  = 64      // size of the first page
	pageBytes = 8 << 20 // wanted bytes of a page
)

// LinePages is the size of the largest page.
const LinePages = 1000

// RosterPage is the number of running jobs that are read at a time.
const RosterPage = 1000
