package txn

import (
	"context"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// batch is what several changes do in one transaction, and what is to be written at its end.
type batch struct {
	jobs  map[jobstore.ID]*jobstore.Row // as they are after what was done so far; nil: deleted
	dirty []jobstore.ID
	fresh []*jobstore.Row // without an ID

	early     map[answerKey]*jobstore.EarlyAnswer // those that were changed, as they are now; nil: there is none
	deferrals map[task.ID]*jobstore.Deferral      // those that were read, as they are now
	answered  map[task.ID]*jobstore.Deferral      // those of them that were changed

	pending         []*jobstore.Row // of the change that is being done
	gone            []jobstore.ID   // likewise
	pendingEarly    []earlyChange
	pendingDeferral *jobstore.Deferral
	missed          task.ID // the deferral that was not read for this deed
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

// keep takes what a change has done as done, or forgets it.
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

// write writes what has changed.
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

// read reports whether what is stored of a job is not what it is: this batch has it.
func (b *batch) read(id jobstore.ID) bool {
	if b == nil {
		return false
	}
	_, read := b.jobs[id]
	return read
}

// owner returns the job, but for one, that this batch has, that has a name and a key, or unique
// key, and that is not over.
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

// with returns the job of a name and a key that is not over, among those that were read.
func (b *batch) with(name, key string) *jobstore.Row {
	for _, j := range b.jobs {
		if j != nil && j.Key == key && j.Name == name && !j.State.Over() {
			return j
		}
	}
	return nil
}

// lastOver returns the newest job of a key that is over. last is the newest one that was written.
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

// makes reports whether a batch makes a job of a key, which is not over.
func (b *batch) makes(name, key string) bool {
	for _, j := range b.fresh {
		if j.Key == key && j.Name == name && !j.State.Over() {
			return true
		}
	}
	return false
}
