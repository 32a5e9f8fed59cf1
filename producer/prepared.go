package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// SubmitPrepared publishes a task with conditions when they let it be sent: data are those of the job that a Submit has made, by this producer or
// by another one. A runner.Runner of the job's queue calls it. To do it again is as safe as any submission: the message has the id and the generation that it had. No middleware
// sees it, and no event tells of it, since the task was told of when it was submitted. Its result goes to who submitted it; the handle asks
// the store. The errors are those of Submit; one that wraps [task.ErrBadArgs] says that data are no such task.
func (p *Producer) SubmitPrepared(ctx context.Context, data []byte) (task.Pending, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	queue, m, err := wire.ReadPrepared(data)
	if err != nil {
		return nil, fmt.Errorf("swarmiji: submit: %w", err)
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	if err := p.declareQueues(ctx); err != nil {
		return nil, err
	}
	pending, w, err := p.awaitResult(ctx, task.ID(m.ID), &task.Metadata{})
	if err != nil {
		return nil, err
	}
	if err := p.cfg.Broker.Publish(ctx, queue, m); err != nil {
		if w != nil {
			w.inbox.forget(w)
		}
		return nil, fmt.Errorf("swarmiji: submit %s: %w", m.ID, err)
	}
	return pending, nil
}

// RevokePrepared records that a task with conditions was revoked, since its job was withdrawn: data
// are those of the job. Its future then ends with [task.ErrRevoked]. A task whose end is recorded
// keeps that. A runner.Runner of the job's queue calls it, and to do it again is safe. An error that
// wraps [task.ErrBadArgs] says that data are no such task.
func (p *Producer) RevokePrepared(ctx context.Context, data []byte) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.inFlight.Done()
	_, m, err := wire.ReadPrepared(data)
	if err != nil {
		return fmt.Errorf("swarmiji: revoke: %w", err)
	}
	e, _, err := p.codec.Decode(m)
	if err != nil {
		return fmt.Errorf("swarmiji: revoke %s: %w: %w", m.ID, task.ErrBadArgs, err)
	}
	if p.cfg.Results == nil {
		return nil
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	err = p.cfg.Results.Save(ctx, resultstore.Record{
		ID: e.ID, Name: e.Name, State: task.StateRevoked, Generation: m.Generation + 1, Deliveries: 1, Retries: e.Retries,
		Error: task.Remote(task.ErrRevoked), FinishedAt: time.Now(), NodeID: p.cfg.Report.NodeID, ReplyTo: e.ReplyTo, Correlation: e.Correlation,
		TTL: e.Meta.ResultTTL.Or(0),
	})
	if errors.Is(err, resultstore.ErrStale) || errors.Is(err, resultstore.ErrUnreachable) { // it has ended, or nobody waits
		return nil
	}
	if err != nil {
		return fmt.Errorf("swarmiji: revoke %s: %w", m.ID, err)
	}
	return nil
}
