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

// SubmitPrepared publishes a task with conditions when these allow it, and returns when the broker
// has confirmed it. data is the message of the job that a Submit of this or another producer has
// made. A runner.Runner of the job's queue calls it.
//
// A repeated call is as safe as a repeated submission: the message keeps its id and generation. No
// middleware is called and no event is sent, since Submit did that. The result goes to the
// submitter; the returned handle asks the store.
//
// Returns the errors of Submit, and one that wraps [task.ErrBadArgs] if data is not such a task.
func (p *Producer) SubmitPrepared(ctx context.Context, data []byte) (task.Pending, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	queue, m, err := wire.ReadPrepared(data)
	if err != nil {
		return nil, fmt.Errorf("swarmiji: submit: %w", err)
	}
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	if err := p.declareQueues(ctx); err != nil {
		return nil, err
	}
	pending, w, err := p.awaitResult(ctx, task.ID(m.ID), &task.Metadata{}, sent)
	if err != nil {
		return nil, err
	}
	if err := p.cfg.Broker.Publish(ctx, queue, m); err != nil {
		if w != nil {
			w.inbox.release(w)
		}
		return nil, submitError(m.ID, err)
	}
	return pending, nil
}

// RevokePrepared stores in Config.Results that a task with conditions was revoked because its job
// was withdrawn. data is the message of the job. The future of the task then ends with
// [task.ErrRevoked]. If the end of the task is recorded already, RevokePrepared changes nothing and
// returns nil. Without Config.Results it stores nothing.
//
// A runner.Runner of the job's queue calls it; it may be repeated. Returns [ErrClosed], errors of
// the store, and an error that wraps [task.ErrBadArgs] if data is not such a task.
func (p *Producer) RevokePrepared(ctx context.Context, data []byte) error {
	if err := p.begin(); err != nil {
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
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	err = p.cfg.Results.Save(ctx, resultstore.Record{
		ID: e.ID, Name: e.Name, State: task.StateRevoked, Generation: m.Generation + 1, Deliveries: 1, Retries: e.Retries,
		Error: task.Remote(task.ErrRevoked), FinishedAt: time.Now(), NodeID: p.cfg.Report.NodeID, ReplyTo: e.ReplyTo, Correlation: e.Correlation,
		TTL: e.Meta.ResultTTL.Or(0),
	})
	// the task has ended, or its submitter has
	if errors.Is(err, resultstore.ErrStale) || errors.Is(err, resultstore.ErrUnreachable) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("swarmiji: revoke %s: %w", m.ID, err)
	}
	return nil
}
