package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// JobCreator stores tasks with conditions until they may be sent. Safe for concurrent use.
type JobCreator interface {
	// CreateForTasks stores tasks in one step, except for those that it refuses, and returns the
	// error of each. A task that is stored already is a success.
	//
	// An error wraps [broker.ErrIndeterminate] if the outcome is unknown, and [task.ErrBadMetadata]
	// or [broker.ErrTooLarge] if the task cannot be stored. It is a [*task.TakenError] if another
	// task has its unique key.
	CreateForTasks(ctx context.Context, tasks []task.Conditioned) []error
}

// submitError returns err with which, the name of the task that was not submitted. For a missing
// queue it adds the next step.
func submitError(which string, err error) error {
	if errors.Is(err, broker.ErrNoQueue) {
		return fmt.Errorf("swarmiji: submit %s: %w; correct the queue's name, start its consumer, or name it in producer.Config.Queues", which, err)
	}
	return fmt.Errorf("swarmiji: submit %s: %w", which, err)
}

// publishAll submits prepared tasks: first those without a unique key and a burst, then those with
// a unique key, then those with a burst. It blocks until each is confirmed or has failed, and
// returns the error of each in the order of all. If a unique key or a burst belongs to another
// submission, it sets first of the task and the error is nil.
func (p *Producer) publishAll(ctx context.Context, all []*staged) []error {
	plain := func(s *staged) bool { return s.unique == nil && s.burst == nil }
	if !slices.ContainsFunc(all, func(s *staged) bool { return !plain(s) }) {
		return p.publishPlain(ctx, all)
	}
	errs := make([]error, len(all))
	some := func(chosen func(*staged) bool, publish func(context.Context, []*staged) []error) {
		var part []*staged
		var at []int
		for i, s := range all {
			if chosen(s) {
				part, at = append(part, s), append(at, i)
			}
		}
		if len(part) > 0 {
			for n, err := range publish(ctx, part) {
				errs[at[n]] = err
			}
		}
	}
	some(plain, p.publishPlain)
	some(func(s *staged) bool { return s.unique != nil }, p.publishUnique)
	some(func(s *staged) bool { return s.burst != nil }, p.publishBursts)
	return errs
}

// publishPlain publishes tasks in one batch, and first stores those with conditions in Config.Jobs.
// It ignores unique keys and bursts. It blocks until each is confirmed or has failed, and returns
// the error of each in the order of all.
func (p *Producer) publishPlain(ctx context.Context, all []*staged) []error {
	var conditioned []*staged
	outs := make([]broker.Outgoing, 0, len(all))
	for _, s := range all {
		if s.conditioned != nil {
			conditioned = append(conditioned, s)
		} else {
			outs = append(outs, s.out)
		}
	}
	if len(conditioned) == 0 {
		return broker.BatchErrors(broker.PublishBatch(ctx, p.cfg.Broker, outs), len(outs))
	}
	kept := p.keep(ctx, conditioned)
	var sent []error
	if len(outs) > 0 {
		sent = broker.BatchErrors(broker.PublishBatch(ctx, p.cfg.Broker, outs), len(outs))
	}
	errs := make([]error, 0, len(all))
	for _, s := range all {
		if s.conditioned != nil {
			errs, kept = append(errs, kept[0]), kept[1:]
		} else {
			errs, sent = append(errs, sent[0]), sent[1:]
		}
	}
	return errs
}

// keep stores tasks with conditions in Config.Jobs in one call, blocks until they answer, and
// returns the error of each.
func (p *Producer) keep(ctx context.Context, all []*staged) []error {
	kept := make([]task.Conditioned, len(all))
	for i, s := range all {
		kept[i] = *s.conditioned
	}
	return p.cfg.Jobs.CreateForTasks(ctx, kept)
}
