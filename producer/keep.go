package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// TakenError is what a task is refused with whose unique key another one has that is not over. It wraps jobs.ErrKeyTaken.
type TakenError struct {
	Key  string  // the unique key
	Job  jobs.ID // that has it
	Task task.ID // which the job is made of; "" for none
	err  error
}

// Error names the job and the task that have the key.
func (e *TakenError) Error() string {
	text := fmt.Sprintf("unique key %q: job %d has it", utf.Cut(e.Key, 128), e.Job)
	if e.Task != "" {
		text += ", which is task " + string(e.Task)
	}
	return text + ": " + e.err.Error()
}

// Unwrap returns the error of the store of jobs.
func (e *TakenError) Unwrap() error { return e.err }

// publishAll submits tasks, those with a unique key last; it returns for each why it was not taken.
func (p *Producer) publishAll(ctx context.Context, all []*staged) []error {
	plain, unique := all, []*staged(nil)
	for i, s := range all {
		switch {
		case s.unique != nil && unique == nil:
			plain, unique = slices.Clone(all[:i]), []*staged{s}
		case s.unique != nil:
			unique = append(unique, s)
		case unique != nil:
			plain = append(plain, s)
		}
	}
	if unique == nil {
		return p.publishPlain(ctx, all)
	}
	var plainErrs []error
	if len(plain) > 0 {
		plainErrs = p.publishPlain(ctx, plain)
	}
	uniqueErrs := p.publishUnique(ctx, unique)
	errs := make([]error, 0, len(all))
	for _, s := range all {
		if s.unique != nil {
			errs, uniqueErrs = append(errs, uniqueErrs[0]), uniqueErrs[1:]
		} else {
			errs, plainErrs = append(errs, plainErrs[0]), plainErrs[1:]
		}
	}
	return errs
}

// publishPlain hands tasks to the broker, and those with conditions to the store of jobs; it returns for each why it was not taken.
func (p *Producer) publishPlain(ctx context.Context, all []*staged) []error {
	var asJobs []*staged
	outs := make([]broker.Outgoing, 0, len(all))
	for _, s := range all {
		if s.job != nil {
			asJobs = append(asJobs, s)
		} else {
			outs = append(outs, s.out)
		}
	}
	if len(asJobs) == 0 {
		return broker.BatchErrors(broker.PublishBatch(ctx, p.cfg.Broker, outs), len(outs))
	}
	made := p.keep(ctx, asJobs)
	var sent []error
	if len(outs) > 0 {
		sent = broker.BatchErrors(broker.PublishBatch(ctx, p.cfg.Broker, outs), len(outs))
	}
	errs := make([]error, 0, len(all))
	for _, s := range all {
		if s.job != nil {
			errs, made = append(errs, made[0]), made[1:]
		} else {
			errs, sent = append(errs, sent[0]), sent[1:]
		}
	}
	return errs
}

// keep makes jobs of tasks with conditions, all of them in one step unless some of them are refused, and returns for each why it was not made.
func (p *Producer) keep(ctx context.Context, all []*staged) []error {
	errs := make([]error, len(all))
	k := keeper{ctx: ctx, p: p, all: all, errs: errs, left: make([]int, 0, len(all))}
	if err := k.known(); err != nil {
		for i := range errs {
			errs[i] = kept(err)
		}
		return errs
	}
	k.make(k.left)
	return errs
}

type keeper struct {
	ctx  context.Context //nolint:containedctx // of the call that made the keeper, which ends with it
	p    *Producer
	all  []*staged
	errs []error
	left []int // those that are to be made
}

// known leaves out the tasks that were submitted before, as far as their jobs are there still: only an id that the caller chose can come twice.
func (k *keeper) known() error {
	chosen := false
	for _, s := range k.all {
		chosen = chosen || s.chosen
	}
	if !chosen {
		for i := range k.all {
			k.left = append(k.left, i)
		}
		return nil
	}
	return k.p.cfg.Jobs.Store().View(k.ctx, func(ctx context.Context, tx jobs.Tx) error {
		k.left = k.left[:0] // it may run twice
		for i, s := range k.all {
			if s.chosen {
				found, err := tx.Find(ctx, jobs.Query{Name: s.job.Name, Key: s.job.Key, Limit: 1})
				if err != nil {
					return err
				}
				if len(found) > 0 {
					continue
				}
			}
			k.left = append(k.left, i)
		}
		return nil
	})
}

// make makes some of the jobs, in order. All are made or none; who is to blame is found by halves.
func (k *keeper) make(some []int) {
	if len(some) == 0 {
		return
	}
	specs := make([]jobs.Spec, len(some))
	for n, i := range some {
		specs[n] = *k.all[i].job
	}
	_, err := k.p.cfg.Jobs.CreateAll(k.ctx, specs)
	switch {
	case err == nil:
	case len(some) == 1:
		k.errs[some[0]] = k.refused(k.all[some[0]], err)
	case errors.Is(err, jobs.ErrState) || errors.Is(err, jobs.ErrBadJob):
		half := len(some) / 2
		k.make(some[:half])
		k.make(some[half:])
	default:
		for _, i := range some {
			k.errs[i] = kept(err)
		}
	}
}

// refused is why one job was not made; nil if it was there.
func (k *keeper) refused(s *staged, err error) error {
	var taken *jobs.KeyTakenError
	if !errors.As(err, &taken) {
		return kept(err)
	}
	t := &TakenError{Key: s.job.UniqueKey, Job: taken.Job, err: err}
	if j, err := k.p.cfg.Jobs.Query(k.ctx, taken.Job); err == nil {
		t.Task, _ = jobs.TaskOf(&j)
	}
	if taken.Key == s.job.Key || t.Task == s.envelope.ID { // somebody else has just submitted the very task
		return nil
	}
	return t
}

// kept is an error of the store of jobs as one of a submission.
func kept(err error) error {
	switch {
	case errors.Is(err, jobs.ErrUnavailable):
		return fmt.Errorf("keep as a job: %w: %w", broker.ErrIndeterminate, err)
	case errors.Is(err, jobs.ErrBadJob):
		return fmt.Errorf("keep as a job: %w: %w", task.ErrBadMetadata, err)
	}
	return fmt.Errorf("keep as a job: %w", err)
}
