package producer

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// SubmitPrepared publishes a task with conditions when they let it be sent: data are those of the job that a Submit has made, by this producer or
// by another one. A jobs.Runner of the job's queue calls it. To do it again is as safe as any submission: the message has the id and the generation that it had. No middleware
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

var _ jobs.PreparedSubmitter = (*Producer)(nil)
