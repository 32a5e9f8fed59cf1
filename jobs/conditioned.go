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

// Keep makes jobs of tasks with conditions, in one step unless some are refused. It returns for
// each task why no job was made. A task that is a job already stays that job. A producer calls it
// (producer.Config.Jobs).
//
// Errors wrap [broker.ErrIndeterminate], [task.ErrBadMetadata] or, with a [*task.TakenError],
// [ErrKeyTaken].
func (s *Service) Keep(ctx context.Context, tasks []task.Conditioned) []error {
	k := keeping{s: s, tasks: tasks, specs: make([]Spec, len(tasks)), errs: make([]error, len(tasks))}
	var left []int
	for i := range tasks {
		if k.errs[i] = k.spec(i); k.errs[i] == nil {
			left = append(left, i)
		}
	}
	left, err := k.unknown(ctx, left)
	if err != nil {
		for i := range k.errs {
			if k.errs[i] == nil {
				k.errs[i] = keepError(err)
			}
		}
		return k.errs
	}
	k.create(ctx, left)
	return k.errs
}

// keeping makes jobs of tasks.
type keeping struct {
	s     *Service
	tasks []task.Conditioned
	specs []Spec
	errs  []error
}

// spec describes the job of a task.
func (k *keeping) spec(i int) error {
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

// readWindows reads windows in UTC, or in the zone named behind the word WINDOWS.
func readWindows(text string) (*when.Windows, error) {
	if spec, err := when.Parse(text); err == nil {
		if w, ok := spec.(*when.Windows); ok {
			return w, nil
		}
	}
	return when.ParseWindows(text, nil)
}

// unknown drops the tasks that are jobs already. Only an id that the caller chose can come twice.
func (k *keeping) unknown(ctx context.Context, some []int) (left []int, err error) {
	chosen := false
	for _, i := range some {
		chosen = chosen || k.tasks[i].Chosen
	}
	if !chosen {
		return some, nil
	}
	err = k.s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		left = nil // the function may run twice
		for _, i := range some {
			if k.tasks[i].Chosen {
				found, err := tx.OfKey(ctx, k.specs[i].Name, k.specs[i].Key, jobstore.Page{Limit: 1})
				if err != nil {
					return err
				}
				if len(found) > 0 {
					continue
				}
			}
			left = append(left, i)
		}
		return nil
	})
	return left, err
}

// create creates some of the jobs, in order, all or none. On a refusal it finds the refused jobs by
// halving.
func (k *keeping) create(ctx context.Context, some []int) {
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
		k.errs[some[0]] = k.refused(ctx, some[0], err)
	case errors.Is(err, ErrState) || errors.Is(err, ErrBadJob):
		half := len(some) / 2
		k.create(ctx, some[:half])
		k.create(ctx, some[half:])
	default:
		for _, i := range some {
			k.errs[i] = keepError(err)
		}
	}
}

// refused returns why one job was not created; nil if it existed.
func (k *keeping) refused(ctx context.Context, i int, err error) error {
	var taken *KeyTakenError
	if !errors.As(err, &taken) {
		return keepError(err)
	}
	t := &task.TakenError{Key: k.specs[i].UniqueKey, Job: strconv.FormatInt(int64(taken.Job), 10), Err: err}
	if j, err := k.s.Query(ctx, taken.Job); err == nil {
		t.Task, _ = TaskOf(&j)
	}
	if taken.Key == k.specs[i].Key || t.Task == k.tasks[i].ID { // the same task, submitted just now
		return nil
	}
	return t
}

// keepError turns an error of the service into one of a submission.
func keepError(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("keep as a job: %w: %w", broker.ErrIndeterminate, err)
	case errors.Is(err, ErrBadJob):
		return fmt.Errorf("keep as a job: %w: %w", task.ErrBadMetadata, err)
	}
	return fmt.Errorf("keep as a job: %w", err)
}
