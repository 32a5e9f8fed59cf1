package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// Spec describes a job to create.
type Spec struct {
	// Name is the name of the job, by which workers claim it. See [Job].
	Name string
	// Data is a JSON object. nil: {}.
	Data []byte
	// FirstRun is the time of the first run. It is rounded up to microseconds. Zero: now.
	FirstRun time.Time
	// Priority orders due jobs: a lower number comes first. Unset: [DefaultPriority].
	Priority task.Opt[int]
	// Repeat is the rule by which the job repeats; see [when.ParseRepeat]. "": it does not repeat. For
	// a job with Mock it is checked, but not stored.
	Repeat string
	// RetryAfter is one modifier with a sign, such as "+5 MINUTES". While the job runs, it is claimed
	// again after this time, ten times in all. "": it is not claimed again while it runs.
	RetryAfter string
	// SequenceKey is the key of the job's sequence. Jobs of one key run one at a time, in the order of
	// their creation. Not together with Repeat or Parent. "": no sequence.
	SequenceKey string
	// Parent is the id of the parent, a job that runs or is PAUSED and has no parent itself. 0: no
	// parent.
	Parent ID
	// Mock limits the job to workers that ask for mock jobs. It then never repeats. Data stay as
	// given.
	Mock bool
	// Unique creates no second job if a job with this name and this Mock exists, in any state. If the
	// two Data differ as JSON, these Data are merged into the existing ones (RFC 7386). The existing
	// job then gets this Repeat, and this Priority if set. Its NextRun stays.
	Unique bool
	// Keep, together with Unique, leaves an existing job unchanged.
	Keep bool

	// Queue is the queue of the job. Only its runner claims the job, as the queue's limit and
	// throttler admit it. Not together with RetryAfter, Parent, Mock or Unique. A FirstRun in the past
	// means now. "": no queue.
	Queue string
	// Weight counts against the limit of the queue while the job runs. It is rounded up to
	// thousandths. 0: it counts nothing. Unset: 1. Only together with Queue.
	Weight task.Opt[float64]
	// Windows are the times at which the job may start. FirstRun is moved to the next opening. nil:
	// any time. Only together with Queue.
	Windows *when.Windows
	// Timeout limits each attempt, the wait for its answer included. 0: no limit. Unset:
	// [DefaultAttemptTimeout]. Only together with Queue. It does not apply to a job that is dispatched
	// as a task (runner.Dispatch), which has time limits of its own.
	Timeout task.Opt[time.Duration]
	// UniqueKey prevents a second open job with this name and this key: Create returns a
	// [KeyTakenError]. "": no such key.
	UniqueKey string
	// Key identifies the job for an answer from outside, together with Name, from the start of its
	// first attempt. It is unique like UniqueKey. "": no key; the handler may set one.
	Key string
	// Respond makes a worker handle the answer. Off: the answer ends the job.
	Respond bool

	message []byte // message of the task with conditions that the job is created for
	// NoDefaults prevents [Service.SetDefaults] from filling in unset fields.
	NoDefaults bool
}

// Created is the result of Create for one Spec.
type Created struct {
	ID ID
	// Existed reports that the Spec is Unique and that the job existed before.
	Existed bool
}

// Create creates one job. It fills unset fields by the function of [Service.SetDefaults], if one is
// registered. It blocks until the commit; the job is then stored durably. Its state is
//
//   - WAITING if its sequence (the jobs with its SequenceKey) has a job that is not over;
//   - PAUSED if its parent runs, until the parent pauses;
//   - QUEUED otherwise.
//
// If spec is Unique and such a job exists, no job is created. The result then has the id of the
// existing job, and Existed is true.
//
// Returns a [FieldError] for an invalid Spec and a [KeyTakenError] if an open job or a waiting task
// has the Key or the UniqueKey. Returns an error that wraps [ErrState] for an unsuitable parent, or
// if an existing unique job has another parent. Returns errors of the store; after [ErrUnavailable]
// the job may exist. The job counts as [Stats].Created or Existed.
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

// specError is the error of CreateAll for one Spec. It adds the index of the Spec.
type specError struct {
	index int
	err   error
}

// Error returns the index of the Spec in the call, and the text of its error.
func (e *specError) Error() string { return fmt.Sprintf("job %d of the call: %v", e.index, e.err) }

// Unwrap returns the error of the Spec.
func (e *specError) Unwrap() error { return e.err }

// CreateAll creates all jobs or none, in the order of specs, as [Service.Create] does. It returns
// one [Created] for each Spec, in the same order. Without specs it returns nil. After an error it
// returns no [Created]; after [ErrUnavailable] the jobs may exist.
//
// It checks the fields of all specs before it creates the first job. The error of a refused Spec
// names its index. Specs of one call see each other: the second of two Unique specs with one name
// has Existed set, and a key that two specs share is a [KeyTakenError]. Each job counts as
// [Stats].Created or Existed.
func (s *Service) CreateAll(ctx context.Context, specs []Spec) ([]Created, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	specs = s.withDefaults(specs)
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
			l.AddRow(spec.Parent)
		}
		_ = l.AddKeys(&jobs[i], spec.Name) // nothing has begun yet, so the missing locks are not an error
		simple = simple && spec.SequenceKey == "" && !spec.Unique && spec.Parent == 0 && spec.UniqueKey == "" && spec.Key == ""
	}
	var done []Created
	var err error
	switch {
	case simple:
		done, err = s.createSimple(ctx, jobs)
	case len(specs) == 1 && specs[0].canShareTx():
		done = make([]Created, 1)
		if done[0], err = s.createShared(ctx, jobs[0]); err != nil {
			err = &specError{0, err}
		}
	default:
		err = s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
			var err error
			done, err = (&maker{Step: t, s: s}).make(ctx, specs, jobs)
			return err
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

// withDefaults returns specs after the functions of SetDefaults have filled in unset fields. Specs
// with NoDefaults, or without a function for their name, stay as given. It calls the functions in
// this goroutine and changes copies: the result is specs itself only if no function applies.
func (s *Service) withDefaults(specs []Spec) []Spec {
	given := specs
	for i := range given {
		complete, ok := s.defaults.Load(given[i].Name)
		if !ok || given[i].NoDefaults {
			continue
		}
		if &specs[0] == &given[0] {
			specs = slices.Clone(given)
		}
		complete.(func(*Spec))(&specs[i])
	}
	return specs
}

// draft checks the fields of a spec and returns the new job, with State QUEUED and without an ID
// and times other than NextRun. It reads no other job and no time. nil Data become {}; a mock job
// gets no Repeat; NextRun is FirstRun, or zero. Returns a FieldError for the first invalid field.
func (s *Service) draft(spec *Spec) (Row, error) {
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

// setTimes sets Created, Changed, NextRun and Due of a new job. A zero NextRun becomes now, and so
// does a past NextRun of a job with a queue. NextRun is then moved into the job's windows, which
// are the times at which the job may start. Due becomes NextRun, or zero unless the job is QUEUED.
//
// Since a transaction may run twice, j must be a copy of the draft.
func (s *Service) setTimes(j *Row, now time.Time) {
	j.Created, j.Changed = now, now
	if j.NextRun.IsZero() || j.Queue != "" && j.NextRun.Before(now) {
		j.NextRun = now
	}
	j.NextRun = s.windows.Place(j, j.NextRun, now)
	rules.SetDue(j, time.Time{})
}

// createSimple saves new jobs that depend on no other job and have no key. It changes no draft. It
// uses Insert if the store implements it, else one Single. It returns their ids in the order of
// drafts, with Existed false. Returns an error of the store unchanged; it does not repeat the call
// itself.
func (s *Service) createSimple(ctx context.Context, drafts []Row) ([]Created, error) {
	jobs := make([]Row, len(drafts))
	refs := make([]*Row, len(drafts))
	draft := func(now time.Time) []*Row {
		for i := range drafts {
			jobs[i] = drafts[i]
			s.setTimes(&jobs[i], now)
			refs[i] = &jobs[i]
		}
		return refs
	}
	var err error
	if in, ok := capability.As[jobstore.Inserter](s.c.Store); ok {
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
