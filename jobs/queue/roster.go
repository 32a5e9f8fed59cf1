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

// roster is what a leader knows of the jobs of its queue that run, for its throttler. It may hold some that have ended elsewhere in the last moments, but it never
// lacks one: jobs of a queue are started by its leader alone, and one that an answer has go on is due at once, so that the look which finds it starts nothing.
type roster struct {
	all   []*entry // in the order in which they began
	begun []*entry // started in a look whose transaction is still to come
	read  time.Time
	// version numbers the admissions of the queue: it is the Run of its record after the last one that is known here.
	version int64
	next    int // which of all is to be looked at next, for whether it runs still
}

// entry is a job of a roster.
type entry struct {
	job   jobstore.Row
	by    *shares // who has set share
	share string
}

const (
	// rosterAge is how long what was read of the jobs is believed. Their data may have been changed.
	rosterAge = time.Minute
)

// cloneRow is a job that shares nothing that can be written to.
func cloneRow(j *jobstore.Row) jobstore.Row {
	c := *j
	c.Data, c.Answer = bytes.Clone(j.Data), bytes.Clone(j.Answer)
	return c
}

// begin adds a job that is to be started.
func (r *roster) begin(j *jobstore.Row) { r.begun = append(r.begun, &entry{job: *j}) }

// last is the one that was added last.
func (r *roster) last() *entry { return r.begun[len(r.begun)-1] }

// settle takes over those that were started, as they are now, and forgets the others.
func (r *roster) settle(started []jobstore.Handout) {
	if len(r.begun) == 0 {
		return
	}
	now := make(map[jobstore.ID]*jobstore.Row, len(started))
	for i := range started {
		now[started[i].ID] = &started[i].Row
	}
	// One that has ended elsewhere, and was started again.
	r.all = slices.DeleteFunc(r.all, func(e *entry) bool { return r.isBegun(e.job.ID, now) })
	for _, e := range r.begun {
		if j := now[e.job.ID]; j != nil {
			e.job = cloneRow(j)
			r.all = append(r.all, e)
		}
	}
	r.begun = nil
}

func (r *roster) isBegun(id jobstore.ID, started map[jobstore.ID]*jobstore.Row) bool {
	return started[id] != nil && slices.ContainsFunc(r.begun, func(e *entry) bool { return e.job.ID == id })
}

// has reports whether all that were handed out again are known.
func (r *roster) has(out []jobstore.Handout) bool {
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

// readRunning reads all jobs of the queue that run.
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

// sync forgets jobs that have ended, given how many there are; of a long roster it looks at a part at a time. stale says that there are others still.
func (r *roster) sync(ctx context.Context, l *Leader, running int) (stale bool, err error) {
	if len(r.all) <= running {
		return false, nil
	}
	if r.next >= len(r.all) {
		r.next = 0
	}
	r.next = max(0, min(r.next, len(r.all)-line.RosterPage)) // a short one is looked at as a whole
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
