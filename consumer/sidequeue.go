package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// sideSuffix is what older versions added to a queue's name for the side queue of tasks that seemed
// to end their process. They fill and empty it themselves; what they leave there when they are
// replaced runs here.
const sideSuffix = ".suspects"

// side reports whether q is such a side queue.
func (q *queue) side() bool { return q.source != q.name }

// oldSideQueue opens the side queue that an older version has left, with one worker. nil: there is
// none, or it cannot be told.
func (q *queue) oldSideQueue(ctx context.Context) *queue {
	inspector, ok := capability.As[broker.Inspector](q.c.cfg.Broker)
	if !ok || task.CheckName(q.name+sideSuffix) != nil {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if _, err := inspector.Stats(looking, q.name+sideSuffix); err != nil {
		if !errors.Is(err, broker.ErrNoQueue) && ctx.Err() == nil {
			q.log(slog.LevelWarn, "whether an older version has left a side queue is not known", slog.Any("error", err))
		}
		return nil
	}
	cfg := q.cfg
	cfg.Workers, cfg.Prefetch, cfg.Levels = 1, 1, nil
	side := newQueue(q.fetch, q.c, q.name, cfg)
	side.source = q.name + sideSuffix
	if err := side.open(ctx); err != nil {
		q.log(slog.LevelWarn, "the side queue of an older version is not consumed", slog.Any("error", err))
		return nil
	}
	return side
}
