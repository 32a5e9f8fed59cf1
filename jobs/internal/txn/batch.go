package txn

import (
	"context"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// batch contains the changes of one shared transaction. The changes are made in memory, one after
// the other, and written at the end. One goroutine uses it.
type batch struct {
	asked   []jobstore.ID                 // ids of the jobs to read; others may have locked some
	jobs    map[jobstore.ID]*jobstore.Row // jobs as the earlier changes have left them; nil: deleted
	dirty   []jobstore.ID                 // ids of saved and deleted jobs, with repetitions
	created []*jobstore.Row               // new jobs, without an ID

	// early answers that the changes have saved; nil: deleted
	early     map[answerKey]*jobstore.EarlyAnswer
	deferrals map[task.ID]*jobstore.Deferral // deferrals that were read, with the changes so far
	answered  map[task.ID]*jobstore.Deferral // those deferrals that were changed

	pending         []*jobstore.Row // jobs that the current change has saved
	deleted         []jobstore.ID   // jobs that the current change has deleted
	pendingEarly    []earlyChange
	pendingDeferral *jobstore.Deferral
	missed          task.ID // deferral that the current change needs and that was not read
}

// newBatch returns an empty batch with room for n jobs.
func newBatch(n int) *batch { return &batch{jobs: make(map[jobstore.ID]*jobstore.Row, n)} }

// readDeferrals locks the deferrals of tasks and stores them in b. It leaves out missing deferrals,
// and deferrals that another transaction has locked, if the store can tell. It does nothing without
// tasks. Returns the error of the store.
func (b *batch) readDeferrals(ctx context.Context, t *Step, tasks []task.ID) error {
	if len(tasks) == 0 {
		return nil
	}
	found, err := t.lockDeferrals(ctx, true, tasks...)
	b.deferrals, b.answered = make(map[task.ID]*jobstore.Deferral, len(found)), make(map[task.ID]*jobstore.Deferral, len(found))
	for i := range found {
		b.deferrals[found[i].Task] = &found[i]
	}
	return err
}

// save notes jobs that the current change has saved. endChange adds them to the batch; nothing is
// written yet.
func (b *batch) save(jobs []*jobstore.Row) { b.pending = append(b.pending, jobs...) }

// endChange ends the current change. If ok is true, it adds the writes of the change to the batch,
// where later changes see them. Otherwise it discards them. It clears the notes for the next
// change, missed included. Nothing is written to the store.
func (b *batch) endChange(ok bool) {
	if ok {
		for _, c := range b.pendingEarly {
			if b.early == nil {
				b.early = map[answerKey]*jobstore.EarlyAnswer{}
			}
			b.early[c.key] = c.now
		}
		if d := b.pendingDeferral; d != nil {
			b.deferrals[d.Task], b.answered[d.Task] = d, d
		}
		for _, j := range b.pending {
			if j.ID == 0 {
				b.created = append(b.created, j)
				continue
			}
			b.jobs[j.ID] = j
			b.dirty = append(b.dirty, j.ID)
		}
		for _, id := range b.deleted {
			b.jobs[id] = nil
			b.dirty = append(b.dirty, id)
		}
	}
	b.pending, b.deleted, b.pendingEarly, b.pendingDeferral, b.missed = nil, nil, nil, nil, ""
}

// write writes all changes of the batch to tx: changed and new jobs, then deleted jobs, then early
// answers and deferrals. Each job is written once, in its last state. It stops at the first error.
func (b *batch) write(ctx context.Context, tx jobstore.Tx) error {
	slices.Sort(b.dirty)
	var save []*jobstore.Row
	var gone []jobstore.ID
	for _, id := range slices.Compact(b.dirty) {
		if j := b.jobs[id]; j != nil {
			save = append(save, j)
		} else {
			gone = append(gone, id)
		}
	}
	if save = append(save, b.created...); len(save) > 0 {
		if err := tx.Save(ctx, save...); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := tx.Delete(ctx, gone...); err != nil {
			return err
		}
	}
	return b.writeAnswers(ctx, tx)
}

// writeAnswers writes the changed early answers and deferrals to tx, and deletes the early answers
// that the changes have deleted. It stops at the first error.
func (b *batch) writeAnswers(ctx context.Context, tx jobstore.Tx) error {
	var save []*jobstore.EarlyAnswer
	for k, e := range b.early {
		if e != nil {
			save = append(save, e)
		} else if err := tx.DeleteEarly(ctx, k.name, k.key); err != nil {
			return err
		}
	}
	if len(save) > 0 {
		if err := tx.SaveEarly(ctx, save...); err != nil {
			return err
		}
	}
	if len(b.answered) == 0 {
		return nil
	}
	return tx.SaveDeferrals(ctx, slices.Collect(maps.Values(b.answered))...)
}

// read reports whether this batch has read the job, or has found that it does not exist. The stored
// row may then be outdated: b.jobs contains the present job. A nil batch has read nothing.
func (b *batch) read(id jobstore.ID) bool {
	if b == nil {
		return false
	}
	_, read := b.jobs[id]
	return read
}

// owner returns an open job of this batch that has a key or a unique key, other than the job
// except. It sees the changes so far, created jobs included. Returns nil if no such job exists, or
// if b is nil.
func (b *batch) owner(key jobstore.Group, except jobstore.ID) *jobstore.Row {
	if b == nil {
		return nil
	}
	for id, j := range b.jobs {
		if id != except && j != nil && !j.State.Over() && j.In(key) {
			return j
		}
	}
	for _, j := range b.created {
		if !j.State.Over() && j.In(key) {
			return j
		}
	}
	return nil
}

// openJob returns the open job with this name and key among the jobs that this batch has read, with
// the changes so far. Created jobs are not included. Returns nil if no such job exists.
func (b *batch) openJob(name, key string) *jobstore.Row {
	for _, j := range b.jobs {
		if j != nil && j.Key == key && j.Name == name && !j.State.Over() {
			return j
		}
	}
	return nil
}

// lastOver returns the newest job with this name and key that is over, or nil. last is the newest
// such job in the store, or nil. Jobs that this batch has read count as the changes so far have
// left them. If the batch has read last itself, its present state is returned, which is nil if the
// batch has deleted it.
func (b *batch) lastOver(name, key string, last *jobstore.Row) *jobstore.Row {
	for id, j := range b.jobs {
		switch {
		case last != nil && last.ID == id:
			last = j
		case j != nil && j.Key == key && j.Name == name && j.State.Over() && (last == nil || last.ID < id):
			last = j
		}
	}
	return last
}

// creates reports whether the changes of this batch so far create an open job with this name and
// key.
func (b *batch) creates(name, key string) bool {
	for _, j := range b.created {
		if j.Key == key && j.Name == name && !j.State.Over() {
			return true
		}
	}
	return false
}
