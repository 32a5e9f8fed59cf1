package txn

import (
	"context"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// batch holds the changes of one shared transaction. They are written at its end.
type batch struct {
	jobs  map[jobstore.ID]*jobstore.Row // as the changes so far have left them; nil: deleted
	dirty []jobstore.ID
	fresh []*jobstore.Row // new jobs, without an ID

	early     map[answerKey]*jobstore.EarlyAnswer // the changed ones, as they are now; nil: deleted
	deferrals map[task.ID]*jobstore.Deferral      // the deferrals that were read, as they are now
	answered  map[task.ID]*jobstore.Deferral      // the changed ones of these

	pending         []*jobstore.Row // jobs that the present change has saved
	gone            []jobstore.ID   // jobs that the present change has deleted
	pendingEarly    []earlyChange
	pendingDeferral *jobstore.Deferral
	missed          task.ID // a deferral that the present change needs, and that was not read
}

func newBatch(n int) *batch { return &batch{jobs: make(map[jobstore.ID]*jobstore.Row, n)} }

// readDeferrals reads and locks the deferrals of tasks.
func (b *batch) readDeferrals(ctx context.Context, tx jobstore.Tx, tasks []task.ID) error {
	if len(tasks) == 0 {
		return nil
	}
	found, err := tx.Deferrals(ctx, tasks...)
	b.deferrals, b.answered = make(map[task.ID]*jobstore.Deferral, len(found)), make(map[task.ID]*jobstore.Deferral, len(found))
	for i := range found {
		b.deferrals[found[i].Task] = &found[i]
	}
	return err
}

func (b *batch) save(jobs []*jobstore.Row) { b.pending = append(b.pending, jobs...) }

// keep takes over the writes of the present change if ok, and else discards them.
func (b *batch) keep(ok bool) {
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
				b.fresh = append(b.fresh, j)
				continue
			}
			b.jobs[j.ID] = j
			b.dirty = append(b.dirty, j.ID)
		}
		for _, id := range b.gone {
			b.jobs[id] = nil
			b.dirty = append(b.dirty, id)
		}
	}
	b.pending, b.gone, b.pendingEarly, b.pendingDeferral, b.missed = nil, nil, nil, nil, ""
}

// write writes the changed and the deleted jobs, then the answers.
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
	if save = append(save, b.fresh...); len(save) > 0 {
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

// writeAnswers writes the early answers and the deferrals that have changed.
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

// read reports whether this batch has read the job. The stored row may then be outdated.
func (b *batch) read(id jobstore.ID) bool {
	if b == nil {
		return false
	}
	_, read := b.jobs[id]
	return read
}

// owner returns the job of this batch that has a name and a key, or a unique key, and is not over.
// It passes over the job but.
func (b *batch) owner(name, key string, unique bool, but jobstore.ID) *jobstore.Row {
	if b == nil {
		return nil
	}
	has := func(j *jobstore.Row) bool {
		return j.Name == name && !j.State.Over() && (unique && j.UniqueKey == key || !unique && j.Key == key)
	}
	for id, j := range b.jobs {
		if id != but && j != nil && has(j) {
			return j
		}
	}
	for _, j := range b.fresh {
		if has(j) {
			return j
		}
	}
	return nil
}

// with returns the job of a name and a key that is not over, among the jobs that were read.
func (b *batch) with(name, key string) *jobstore.Row {
	for _, j := range b.jobs {
		if j != nil && j.Key == key && j.Name == name && !j.State.Over() {
			return j
		}
	}
	return nil
}

// lastOver returns the newest job of a key that is over. last is the newest stored one.
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

// makes reports whether this batch creates a job of a key that is not over.
func (b *batch) makes(name, key string) bool {
	for _, j := range b.fresh {
		if j.Key == key && j.Name == name && !j.State.Over() {
			return true
		}
	}
	return false
}
