package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// maker creates the jobs of one call of CreateAll in a transaction. It first reads all other jobs
// that the specs depend on, in a few calls of the store. It then handles the specs one after the
// other, and writes all changes last.
type maker struct {
	*txn.Step
	s    *Service
	busy map[string]bool // sequence keys that have an open job
	// the error for each key or unique key that another job or task has
	taken   map[jobstore.Group]error
	named   map[jobstore.Group]*Row // the existing jobs of unique specs; nil: no job exists
	changed map[ID]*Row             // existing jobs to save
	created []*Row                  // new jobs to save, in the order of the specs
}

// make creates the jobs of specs from their drafts, in the transaction of m. It returns one Created
// for each spec, in order; Existed is set for a spec that used an existing unique job. It does not
// change drafts.
//
// Returns a specError, with the index, for the first spec that it refuses. Returns ErrLocks, for
// another try, if a lock is missing, and errors of the store unchanged.
func (m *maker) make(ctx context.Context, specs []Spec, drafts []Row) ([]Created, error) {
	if err := m.read(ctx, specs, drafts); err != nil {
		return nil, err
	}
	m.changed = map[ID]*Row{}
	jobs := make([]*Row, len(specs))
	done := make([]Created, len(specs))
	for i := range specs {
		j := drafts[i]
		var err error
		if jobs[i], err = m.add(&specs[i], &j); err != nil {
			return nil, &specError{i, err}
		}
		done[i].Existed = jobs[i] != &j
	}
	if err := m.write(ctx); err != nil {
		return nil, err
	}
	for i, j := range jobs {
		done[i].ID = j.ID
	}
	return done, nil
}

// read looks up the jobs that the specs depend on. busy gets the sequence keys that have a job that
// is not over. named gets the oldest existing job of each Unique spec, locked, or nil. taken gets a
// KeyTakenError for each Key or UniqueKey that an open job or a waiting task has.
//
// Returns ErrLocks, for another try, if readNames cannot lock a job, and errors of the store.
func (m *maker) read(ctx context.Context, specs []Spec, drafts []Row) error {
	sequences, names, keys := map[jobstore.Group]bool{}, map[jobstore.Group]bool{}, map[jobstore.Group]bool{}
	for i := range specs {
		j := &drafts[i]
		if j.SequenceKey != "" {
			sequences[jobstore.Group{By: jobstore.BySequence, Key: j.SequenceKey}] = true
		}
		if specs[i].Unique {
			names[j.Names()] = true
		}
		for _, k := range j.Keys() {
			keys[k] = true
		}
	}
	m.busy = make(map[string]bool, len(sequences))
	if len(sequences) > 0 {
		found, err := m.Tx.First(ctx, append(sequenceHolders(), Waiting), slices.Collect(maps.Keys(sequences))...)
		if err != nil {
			return err
		}
		for g := range found {
			m.busy[g.Key] = true
		}
	}
	if err := m.readNames(ctx, names); err != nil {
		return err
	}
	var err error
	m.taken, err = m.Taken(ctx, 0, slices.Collect(maps.Keys(keys))...)
	if m.taken == nil {
		m.taken = map[jobstore.Group]error{}
	}
	return err
}

// add prepares the new job j of a spec, appends it to m.created, and returns it. It sets the times
// of j (setTimes). If the spec is Unique and a unique job with its name exists, add applies the
// spec to that job and returns it instead (updateExisting). It saves nothing.
//
// A job with a Parent becomes its child. A job whose sequence is in use becomes WAITING. Its keys,
// its sequence and its unique name count as used for later specs of the call. Returns an error if a
// key is taken, the parent cannot have the child, or the existing job refuses the spec.
func (m *maker) add(spec *Spec, j *Row) (*Row, error) {
	if spec.Unique {
		if old := m.named[j.Names()]; old != nil {
			return old, m.updateExisting(old, j, spec)
		}
	}
	if spec.Parent != 0 {
		if err := m.adopt(j); err != nil {
			return nil, err
		}
	}
	if j.SequenceKey != "" {
		if m.busy[j.SequenceKey] {
			j.State = Waiting
		}
		m.busy[j.SequenceKey] = true
	}
	for _, k := range j.Keys() {
		if err := m.taken[k]; err != nil {
			return nil, err
		}
		m.taken[k] = &KeyTakenError{Key: k.Key}
	}
	m.s.setTimes(j, m.Now)
	m.created = append(m.created, j)
	if old, asked := m.named[j.Names()]; asked && old == nil && j.Unique() {
		m.named[j.Names()] = j
	}
	return j, nil
}

// write saves the jobs in m.changed, then the jobs in m.created in the order of the specs. It sets
// Changed and Due of the changed jobs and the ids of the created jobs. It skips an empty list.
// Returns the first error of the store.
func (m *maker) write(ctx context.Context) error {
	if len(m.changed) > 0 {
		if err := m.Save(ctx, slices.Collect(maps.Values(m.changed))...); err != nil {
			return err
		}
	}
	if len(m.created) == 0 {
		return nil
	}
	return m.Tx.Save(ctx, m.created...)
}

// adopt makes j a child of the job j.Parent. It sets HasChildren of the parent and lets write save
// the parent. If the parent runs, j becomes PAUSED. If the parent is PAUSED, j keeps its state.
//
// Returns an error that wraps ErrState if the parent does not exist, neither runs nor is PAUSED, is
// a child itself, or differs in Mock. Call it with the parent locked.
func (m *maker) adopt(j *Row) error {
	p := m.Rows[j.Parent]
	switch {
	case p == nil:
		return fmt.Errorf("%w: job %d", ErrParentNotFound, j.Parent)
	case !p.State.Runs() && p.State != Paused:
		return fmt.Errorf("%w: job %d is %s", ErrParentState, p.ID, p.State)
	case p.Mock != j.Mock:
		return fmt.Errorf("%w: job %d", ErrMockDiffers, p.ID)
	case p.Parent != 0:
		return fmt.Errorf("%w: job %d", ErrGrandchild, p.ID)
	}
	if p.State.Runs() {
		j.State = Paused
	}
	if !p.HasChildren {
		p.HasChildren = true // HasChildren also prevents Dropper.Drop from deleting the parent
		m.changed[p.ID] = p
	}
	return nil
}
