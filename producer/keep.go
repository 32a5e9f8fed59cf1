package producer

import (
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// Keeper keeps tasks with conditions until they let them be sent. Safe for concurrent use.
type Keeper interface {
	// Keep keeps tasks, all of them in one step unless some are refused, and returns for each why it is not kept. A task that is kept already is kept.
	// Errors wrap [broker.ErrIndeterminate] where that is not known, [task.ErrBadMetadata] or [broker.ErrTooLarge] where the task is
	// one that cannot be kept, or they are a [*task.TakenError].
	Keep(ctx context.Context, tasks []task.Conditioned) []error
}

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

// publishPlain hands tasks to the broker, and those with conditions to their keeper; it returns for each why it was not taken.
func (p *Producer) publishPlain(ctx context.Context, all []*staged) []error {
	var conditioned []*staged
	outs := make([]broker.Outgoing, 0, len(all))
	for _, s := range all {
		if s.kept != nil {
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
		if s.kept != nil {
			errs, kept = append(errs, kept[0]), kept[1:]
		} else {
			errs, sent = append(errs, sent[0]), sent[1:]
		}
	}
	return errs
}

// keep has tasks with conditions kept, and returns for each why it is not.
func (p *Producer) keep(ctx context.Context, all []*staged) []error {
	kept := make([]task.Conditioned, len(all))
	for i, s := range all {
		kept[i] = *s.kept
	}
	return p.cfg.Jobs.Keep(ctx, kept)
}
