package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// CreateForTasks creates a job for each task with conditions ([task.Conditions]). The runner of the
// job's queue sends the task when the job starts. CreateForTasks returns one error per task, in the
// order of tasks; nil means that the job exists. A task whose id already has a job keeps that job.
// A producer calls it (producer.Config.Jobs).
//
// All jobs are created in one transaction if none is refused. Otherwise the jobs that are not
// refused are created in several. If the store fails, all jobs of a transaction get its error. If
// it fails while CreateForTasks looks for existing jobs, no job is created, and all valid tasks get
// the error.
//
// Errors wrap [broker.ErrIndeterminate] if the store did not reply: the job may exist. They wrap
// [task.ErrBadMetadata] for an invalid task. A [*task.TakenError], which wraps [ErrKeyTaken], names
// the task that has the unique key.
func (s *Service) CreateForTasks(ctx context.Context, tasks []task.Conditioned) []error {
	k := conditionedJobs{s: s, tasks: tasks, specs: make([]Spec, len(tasks)), errs: make([]error, len(tasks))}
	var left []int
	for i := range tasks {
		if k.errs[i] = k.spec(i); k.errs[i] == nil {
			left = append(left, i)
		}
	}
	left, err := k.withoutJob(ctx, left)
	if err != nil {
		for i := range k.errs {
			if k.errs[i] == nil {
				k.errs[i] = submissionError(err)
			}
		}
		return k.errs
	}
	k.create(ctx, left)
	return k.errs
}

// conditionedJobs is one call of CreateForTasks. It creates jobs for tasks with conditions. specs
// and errs have one element for each task, by its index; a nil error means that the job exists.
type conditionedJobs struct {
	s     *Service
	tasks []task.Conditioned
	specs []Spec
	errs  []error
}

// spec fills specs[i] with the job of tasks[i]. The job has no Timeout, since the task has its own
// time limit. A Priority above MaxPriority becomes MaxPriority. Returns an error that wraps
// task.ErrBadMetadata if its windows cannot be parsed.
func (k *conditionedJobs) spec(i int) error {
	t := &k.tasks[i]
	c := &t.Conditions
	k.specs[i] = Spec{
		Name: t.Name, Queue: c.Throttle, Key: KeyOfTask(t.ID), SequenceKey: c.SequenceKey, UniqueKey: c.UniqueKey, Weight: c.Weight,
		Timeout: task.Set(time.Duration(0)), // its task has its own time limit
		message: t.Message, FirstRun: t.NotBefore, Priority: task.Set(min(t.Priority, MaxPriority)),
	}
	if c.Windows == "" {
		return nil
	}
	w, err := readWindows(c.Windows)
	if err != nil {
		return fmt.Errorf("%w: windows: %w", task.ErrBadMetadata, err)
	}
	k.specs[i].Windows = w
	return nil
}

// readWindows parses the text of windows. The text may begin with WINDOWS and a zone; without these
// the zone is UTC. Returns the error of when.ParseWindows if neither form can be parsed.
func readWindows(text string) (*when.Windows, error) {
	if spec, err := when.Parse(text); err == nil {
		if w, ok := spec.(*when.Windows); ok {
			return w, nil
		}
	}
	return when.ParseWindows(text, nil)
}

// withoutJob returns the given task indexes, in order, without those whose task already has a job
// in any state. It only looks up ids that the caller has chosen, since other ids are never
// submitted twice. If no id was chosen, it reads nothing. Returns an error of the store.
func (k *conditionedJobs) withoutJob(ctx context.Context, some []int) (left []int, err error) {
	var chosen []jobstore.Group
	key := func(i int) jobstore.Group {
		return jobstore.Group{By: jobstore.ByKey, Name: k.specs[i].Name, Key: k.specs[i].Key}
	}
	for _, i := range some {
		if k.tasks[i].Chosen {
			chosen = append(chosen, key(i))
		}
	}
	if len(chosen) == 0 {
		return some, nil
	}
	var found map[jobstore.Group]ID
	if err := k.s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		found, err = tx.First(ctx, nil, chosen...)
		return err
	}); err != nil {
		return nil, err
	}
	for _, i := range some {
		if _, exists := found[key(i)]; !exists || !k.tasks[i].Chosen {
			left = append(left, i)
		}
	}
	return left, nil
}

// create creates the jobs of the given task indexes in one transaction, in order. If the service
// refuses any of several jobs (ErrState or ErrBadJob), no job of the list is created. It then
// splits the list in halves and tries each half, down to single jobs. It records the error of each
// refused job in errs (refusal).
//
// An error of the store is recorded for all jobs of the transaction; they are not tried again.
func (k *conditionedJobs) create(ctx context.Context, some []int) {
	if len(some) == 0 {
		return
	}
	specs := make([]Spec, len(some))
	for n, i := range some {
		specs[n] = k.specs[i]
	}
	_, err := k.s.CreateAll(ctx, specs)
	switch {
	case err == nil:
	case len(some) == 1:
		k.errs[some[0]] = k.refusal(ctx, some[0], err)
	case errors.Is(err, ErrState) || errors.Is(err, ErrBadJob):
		half := len(some) / 2
		k.create(ctx, some[:half])
		k.create(ctx, some[half:])
	default:
		for _, i := range some {
			k.errs[i] = submissionError(err)
		}
	}
}

// refusal returns the error of task i, whose job was not created because of err. Returns nil if the
// job of the same task already exists. A taken unique key becomes a task.TakenError with the id of
// the job that has the key. It reads that job; if the job belongs to a task, the error also names
// the task. Any other err becomes its submissionError.
func (k *conditionedJobs) refusal(ctx context.Context, i int, err error) error {
	var taken *KeyTakenError
	if !errors.As(err, &taken) {
		return submissionError(err)
	}
	t := &task.TakenError{Key: k.specs[i].UniqueKey, Job: strconv.FormatInt(int64(taken.Job), 10), Err: taken}
	if j, err := k.s.Query(ctx, taken.Job); err == nil {
		t.Task, _ = TaskOf(&j)
	}
	if taken.Key == k.specs[i].Key || t.Task == k.tasks[i].ID { // the same task, submitted just now
		return nil
	}
	return t
}

// submissionError wraps an error of the service in the error that a producer reports.
// ErrUnavailable also wraps broker.ErrIndeterminate, and ErrBadJob also wraps task.ErrBadMetadata.
// Any other error only gets a prefix.
func submissionError(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("create the job of a task: %w: %w", broker.ErrIndeterminate, err)
	case errors.Is(err, ErrBadJob):
		return fmt.Errorf("create the job of a task: %w: %w", task.ErrBadMetadata, err)
	}
	return fmt.Errorf("create the job of a task: %w", err)
}
