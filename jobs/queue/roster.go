package queue

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// roster contains the running jobs of a queue, for the throttler of its leader. Only the goroutine
// of Next uses it, and the throttler that it waits for. It may contain jobs that ended elsewhere a
// moment ago. It lacks no job that matters for admission:
//
//   - only the leader starts jobs of its queue;
//   - a job that an answer has made due stops the admission that finds it.
type roster struct {
	all   []*entry // in the order of their starts
	begun []*entry // started by this plan, not committed yet
	read  time.Time
	// version is the QueueLease.Admissions of the last known admission.
	version int64
	next    int // index in all of the next job that sync checks
}

// entry is one job of a roster.
type entry struct {
	job   jobstore.Row
	by    *shares // the throttler that has set share
	share string
}

const (
	// rosterAge is the time after which the roster is read again, since the data of its jobs may have
	// changed.
	rosterAge = time.Minute
)

// cloneRow returns a copy of j that shares no memory with it.
func cloneRow(j *jobstore.Row) jobstore.Row {
	c := *j
	c.Data, c.Answer = bytes.Clone(j.Data), bytes.Clone(j.Answer)
	return c
}

// begin adds a job that the present plan starts to r.begun. settle later moves it to r.all.
func (r *roster) begin(j *jobstore.Row) { r.begun = append(r.begun, &entry{job: *j}) }

// last returns the entry that begin added last to r.begun. It panics if r.begun is empty.
func (r *roster) last() *entry { return r.begun[len(r.begun)-1] }

// settle ends a plan. It moves the jobs of r.begun that the transaction has started to r.all, as
// they are stored, and empties r.begun. started contains all claimed jobs of the transaction. It
// removes an older entry of the same job from r.all.
func (r *roster) settle(started []jobstore.Handout) {
	if len(r.begun) == 0 {
		return
	}
	now := make(map[jobstore.ID]*jobstore.Row, len(started))
	for i := range started {
		now[started[i].ID] = &started[i].Row
	}
	// A job that ended elsewhere was started again.
	r.all = slices.DeleteFunc(r.all, func(e *entry) bool { return r.isBegun(e.job.ID, now) })
	for _, e := range r.begun {
		if j := now[e.job.ID]; j != nil {
			e.job = cloneRow(j)
			r.all = append(r.all, e)
		}
	}
	r.begun = nil
}

// isBegun reports whether the job is in r.begun and also in started.
func (r *roster) isBegun(id jobstore.ID, started map[jobstore.ID]*jobstore.Row) bool {
	return started[id] != nil && slices.ContainsFunc(r.begun, func(e *entry) bool { return e.job.ID == id })
}

// contains reports whether the roster, the leader's list of running jobs, has all jobs of out in
// r.all. It is true for an empty out. Jobs in r.begun do not count.
func (r *roster) contains(out []jobstore.Handout) bool {
	if len(out) == 0 {
		return true
	}
	unknown := make(map[jobstore.ID]bool, len(out))
	for i := range out {
		unknown[out[i].ID] = true
	}
	for _, e := range r.all {
		delete(unknown, e.job.ID)
	}
	return len(unknown) == 0
}

// readRunning reads all jobs of the queue that are RUNNING or RUNQUEUED (they run and wait for a
// worker), page by page. It returns them as a new roster, the leader's list of running jobs, in the
// order of their starts. The caller sets its version. Returns a nil roster and the error of the
// store if a page cannot be read.
func (l *Leader) readRunning(ctx context.Context) (*roster, error) {
	r := &roster{read: time.Now()}
	after := jobstore.ID(0)
	for {
		found, err := l.view(ctx, func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Row, error) {
			return tx.OfQueue(ctx, l.q.Name, jobstore.Page{States: []jobstore.State{jobstore.Running, jobstore.RunQueued}, After: after, Limit: line.RosterPage})
		})
		if err != nil {
			return nil, err
		}
		for i := range found {
			r.all = append(r.all, &entry{job: found[i]})
		}
		if len(found) < line.RosterPage {
			break
		}
		after = found[len(found)-1].ID
	}
	slices.SortStableFunc(r.all, func(a, b *entry) int {
		return cmp.Or(a.job.LastRun.Compare(b.job.LastRun), cmp.Compare(a.job.ID, b.job.ID))
	})
	return r, nil
}

// sync removes ended jobs if the roster, the leader's list of running jobs, has more jobs than
// running, the number in the store. In a long roster it checks one page per call and continues
// there at the next call. stale reports that ended jobs remain. After an error of the store, which
// it returns, it removes nothing.
func (r *roster) sync(ctx context.Context, l *Leader, running int) (stale bool, err error) {
	if len(r.all) <= running {
		return false, nil
	}
	if r.next >= len(r.all) {
		r.next = 0
	}
	r.next = max(0, min(r.next, len(r.all)-line.RosterPage)) // a short roster is checked completely
	part := r.all[r.next:min(r.next+line.RosterPage, len(r.all))]
	ids := make([]jobstore.ID, len(part))
	for i, e := range part {
		ids[i] = e.job.ID
	}
	found, err := l.view(ctx, func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Row, error) { return tx.Jobs(ctx, ids...) })
	if err != nil {
		return false, err
	}
	runs := make(map[jobstore.ID]bool, len(found))
	for i := range found {
		runs[found[i].ID] = found[i].State.Runs()
	}
	end := r.next + len(part)
	kept := slices.DeleteFunc(slices.Clone(part), func(e *entry) bool { return !runs[e.job.ID] })
	r.all = slices.Concat(r.all[:r.next], kept, r.all[end:])
	r.next += len(kept)
	return len(r.all) > running, nil
}
