package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// Spec describes a job to create.
type Spec struct {
	// Name: see [Job].
	Name string
	// Data is a JSON object. nil: {}.
	Data []byte
	// FirstRun is when it runs. Zero: now. Fractions of a microsecond are rounded up.
	FirstRun time.Time
	// Priority: lower goes first. Unset: [DefaultPriority].
	Priority task.Opt[int]
	// Repeat: see [when.ParseRepeat]. "": none. For a job with Mock it is checked, and not stored.
	Repeat string
	// RetryAfter is one modifier with a sign, such as "+5 MINUTES". The job is claimed again while
	// it runs, each time after this time, ten times in all. "": never.
	RetryAfter string
	// SequenceKey: jobs of one key run one at a time, in the order of their creation. Not together
	// with Repeat or Parent. "": none.
	SequenceKey string
	// Parent is a job that runs, or is PAUSED, and has no parent itself. 0: none.
	Parent ID
	// Mock: only workers that ask for such jobs claim it, and it never repeats. Data are not
	// touched.
	Mock bool
	// Unique: if a job of this name and this Mock exists, in any state, no other is created. If
	// Data differ as JSON, they are merged into its own (RFC 7386). It then gets this Repeat, and
	// this Priority if set; its NextRun stays.
	Unique bool
	// Keep, with Unique: an existing job stays as it is.
	Keep bool

	// Queue is the queue whose runner claims the job, as its limit and its throttler let it. Not
	// together with RetryAfter, Parent, Mock or Unique. A FirstRun in the past counts as now. "":
	// none.
	Queue string
	// Weight counts against the limit of the queue while the job runs, rounded up to thousandths.
	// 0: nothing. Unset: 1. Only with Queue.
	Weight task.Opt[float64]
	// Windows are the times at which it may start. FirstRun is moved to the next opening. nil: any
	// time. Only with Queue.
	Windows *when.Windows
	// Timeout is the most time of an attempt, the wait for its answer included. 0: no limit. Unset:
	// [DefaultAttemptTimeout]. Only with Queue. It does not concern a job that is dispatched as a
	// task (runner.Dispatch), which has time limits of its own.
	Timeout task.Opt[time.Duration]
	// UniqueKey: while a job of this name and this key is not over, a second one is refused with a
	// [KeyTakenError]. "": none.
	UniqueKey string
	// Key names the job for an answer from outside, together with Name, once the job has begun. It
	// is unique like UniqueKey. "": none, or a key that its handler sets.
	Key string
	// Respond: its worker looks at the answer. Off: the answer ends the job.
	Respond bool

	message []byte // of the task with conditions that it is made of
	// NoDefaults: [Service.SetDefaults] does not fill in unset fields.
	NoDefaults bool
}

// Created is the result of Create for one Spec.
type Created struct {
	ID ID
	// Existed: the Spec is Unique, and the job existed.
	Existed bool
}

// Create creates a job. When it returns, the job is on disk. Its state is
//
//   - WAITING if jobs of its sequence key exist that are not over;
//   - PAUSED if it is the child of a running job, until the parent pauses;
//   - else QUEUED.
func (s *Service) Create(ctx context.Context, spec Spec) (Created, error) {
	all, err := s.CreateAll(ctx, []Spec{spec})
	if err != nil {
		var one *specError
		if errors.As(err, &one) {
			err = one.err
		}
		return Created{}, err
	}
	return all[0], nil
}

// specError adds to an error the Spec that it is about.
type specError struct {
	index int
	err   error
}

func (e *specError) Error() string { return fmt.Sprintf("job %d of those to make: %v", e.index, e.err) }
func (e *specError) Unwrap() error { return e.err }

// CreateAll creates all jobs or none, in this order. All specs are checked before the first is
// created.
func (s *Service) CreateAll(ctx context.Context, specs []Spec) ([]Created, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	var l txn.Locks
	jobs := make([]Row, len(specs))
	simple := true
	for i := range specs {
		spec := &specs[i]
		var err error
		if jobs[i], err = s.draft(spec); err != nil {
			return nil, &specError{i, err}
		}
		if spec.SequenceKey != "" {
			l.AddSequence(spec.SequenceKey)
		}
		if spec.Unique {
			l.AddUnique(spec.Name)
		}
		if spec.Parent != 0 {
			l.AddParent(spec.Parent)
		}
		_ = l.AddKeys(&jobs[i], spec.Name) // nothing has begun that must start again
		simple = simple && spec.SequenceKey == "" && !spec.Unique && spec.Parent == 0 && spec.UniqueKey == "" && spec.Key == ""
	}
	var done []Created
	var err error
	switch {
	case simple:
		done, err = s.createSimple(ctx, jobs)
	case len(specs) == 1 && specs[0].sharesMaking():
		done = make([]Created, 1)
		if done[0], err = s.createShared(ctx, jobs[0]); err != nil {
			err = &specError{0, err}
		}
	default:
		err = s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
			m := maker{Step: t, s: s, done: make([]Created, len(specs)), busy: map[string]bool{}, keys: map[string]bool{}}
			if err := m.make(ctx, specs, jobs); err != nil {
				return err
			}
			done = m.done
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		if d.Existed {
			s.count.existed.Add(1)
		} else {
			s.count.created.Add(1)
		}
	}
	return done, nil
}

// draft makes a job of a spec without reads of other jobs or of the time.
func (s *Service) draft(spec *Spec) (Row, error) {
	if complete, ok := s.defaults.Load(spec.Name); ok && !spec.NoDefaults {
		own := *spec // the caller's Spec stays unchanged
		spec = &own
		complete.(func(*Spec))(spec)
	}
	j := Row{Job: Job{State: Queued, Name: spec.Name, Parent: spec.Parent, SequenceKey: spec.SequenceKey, Mock: spec.Mock}}
	j.Priority = spec.Priority.Or(DefaultPriority)
	var errs [6]error
	errs[0] = rules.CheckField("name", spec.Name, false)
	errs[1] = rules.CheckField("sequenceKey", spec.SequenceKey, true)
	errs[2] = rules.CheckPriority(spec.Priority)
	j.Repeat, _, errs[3] = s.checkRepeat(spec.Repeat)
	j.RetryAfter, errs[4] = rules.CheckRetryAfter(spec.RetryAfter)
	j.NextRun, errs[5] = rules.CheckTime("firstRun", spec.FirstRun)
	for _, err := range errs {
		if err != nil {
			return j, err
		}
	}
	switch {
	case spec.Parent < 0:
		return j, &FieldError{Field: "parentJobID", Problem: rules.Malformed}
	case j.SequenceKey != "" && j.Repeat != "":
		return j, &FieldError{Field: "sequenceKey", Problem: "not together with repeat"}
	case j.SequenceKey != "" && j.Parent != 0:
		return j, &FieldError{Field: "sequenceKey", Problem: "not together with parentJobID"}
	}
	if j.Mock {
		j.Repeat = ""
	}
	if err := s.draftQueue(&j, spec); err != nil {
		return j, err
	}
	j.Data = []byte("{}")
	if spec.Data != nil {
		var err error
		if j.Data, err = rules.CheckGiven(spec.Data); err != nil {
			return j, err
		}
	}
	if spec.message != nil {
		message, err := rules.CheckGiven(spec.message)
		if err != nil {
			return j, err
		}
		j.Message = string(message)
	}
	return j, nil
}

// born sets the times of j. A transaction may run twice, so j is a copy of the draft.
func (s *Service) born(j *Row, now time.Time) {
	j.Created, j.Changed = now, now
	if j.NextRun.IsZero() || j.Queue != "" && j.NextRun.Before(now) {
		j.NextRun = now
	}
	j.NextRun = s.windows.Place(j, j.NextRun, now)
	rules.SetDue(j, time.Time{})
}

// createSimple creates jobs in one step that need no read of other jobs.
func (s *Service) createSimple(ctx context.Context, drafts []Row) ([]Created, error) {
	jobs := make([]Row, len(drafts))
	refs := make([]*Row, len(drafts))
	draft := func(now time.Time) []*Row {
		for i := range drafts {
			jobs[i] = drafts[i]
			s.born(&jobs[i], now)
			refs[i] = &jobs[i]
		}
		return refs
	}
	var err error
	if in, ok := s.c.Store.(jobstore.Inserter); ok {
		err = in.Insert(ctx, draft)
	} else {
		err = s.c.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			return tx.Save(ctx, draft(now)...)
		})
	}
	if err != nil {
		return nil, err
	}
	done := make([]Created, len(jobs))
	for i := range jobs {
		done[i].ID = jobs[i].ID
	}
	return done, nil
}

// maker creates jobs in one transaction, one after the other. Jobs that no later step reads are
// written together.
type maker struct {
	*txn.Step
	s    *Service
	done []Created
	busy map[string]bool // sequence keys of other jobs
	keys map[string]bool // keys and unique keys of jobs of this transaction
	jobs []*Row          // not written yet
	at   []int           // their places in done
}

func (m *maker) make(ctx context.Context, specs []Spec, drafts []Row) error {
	for i := range specs {
		j := drafts[i]
		if err := m.one(ctx, i, &specs[i], &j); err != nil {
			return err
		}
	}
	return m.flush(ctx)
}

func (m *maker) one(ctx context.Context, i int, spec *Spec, j *Row) error {
	if spec.Unique {
		if err := m.flush(ctx); err != nil {
			return err
		}
		old, err := m.there(ctx, spec)
		if err != nil {
			return err
		}
		if old != nil {
			m.done[i] = Created{ID: old.ID, Existed: true}
			if err := m.meet(ctx, old, j, spec); err != nil {
				return &specError{i, err}
			}
			return nil
		}
	}
	if spec.Parent != 0 {
		if err := m.adopt(ctx, j); err != nil {
			return &specError{i, err}
		}
	}
	if spec.SequenceKey != "" {
		if err := m.line(ctx, j); err != nil {
			return err
		}
	}
	if err := m.own(ctx, j); err != nil {
		return &specError{i, err}
	}
	m.s.born(j, m.Now)
	m.jobs, m.at = append(m.jobs, j), append(m.at, i)
	return nil
}

func (m *maker) flush(ctx context.Context) error {
	if len(m.jobs) == 0 {
		return nil
	}
	if err := m.Tx.Save(ctx, m.jobs...); err != nil {
		return err
	}
	for n, j := range m.jobs {
		m.done[m.at[n]].ID = j.ID
	}
	m.jobs, m.at = nil, nil
	return nil
}

// line puts j behind the other jobs of its sequence key.
func (m *maker) line(ctx context.Context, j *Row) error {
	busy, known := m.busy[j.SequenceKey]
	if !known {
		found, err := m.Tx.OfSequence(ctx, j.SequenceKey, jobstore.Page{States: append(holding(), Waiting), Limit: 1})
		if err != nil {
			return err
		}
		busy = len(found) > 0
	}
	m.busy[j.SequenceKey] = true
	if busy {
		j.State = Waiting
	}
	return nil
}

// own gives j its keys. Returns an error if another job has one of them.
func (m *maker) own(ctx context.Context, j *Row) error {
	for _, k := range [2][2]string{{"unique ", j.UniqueKey}, {"", j.Key}} {
		if k[1] == "" {
			continue
		}
		lock := k[0] + jobstore.KeyDigest(j.Name, k[1])
		if m.keys[lock] {
			return &KeyTakenError{Key: k[1]}
		}
		m.keys[lock] = true
	}
	return m.Free(ctx, j)
}

// adopt makes j a child of its parent.
func (m *maker) adopt(ctx context.Context, j *Row) error {
	p := m.Parents[j.Parent]
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
	if p.HasChildren {
		return nil
	}
	p.HasChildren = true
	return m.Save(ctx, p) // HasChildren also keeps a Dropper from ending the parent
}
