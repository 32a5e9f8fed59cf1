package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// sideSuffix is the suffix of the side queues in which older versions ran tasks that seemed to end
// their process. Tasks that remain there after an upgrade run here.
const sideSuffix = ".suspects"

// statsTimeout limits the check for a side queue.
const statsTimeout = 5 * time.Second

// side reports whether q is the side queue of an older version.
func (q *queue) side() bool { return q.source != q.name }

// oldSideQueue subscribes to the side queue of q, if an older version has left one, and returns it.
// It has one worker and a prefetch of 1. Returns nil if none exists, if its name would be invalid,
// or if the broker cannot tell or fails; failures are logged. It waits up to statsTimeout for the
// check, and for an unreachable broker until ctx ends.
func (q *queue) oldSideQueue(ctx context.Context) *queue {
	inspector, ok := capability.As[broker.Inspector](q.c.cfg.Broker)
	if !ok || task.CheckName(q.name+sideSuffix) != nil {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	if _, err := inspector.Stats(looking, q.name+sideSuffix); err != nil {
		if !errors.Is(err, broker.ErrNoQueue) && ctx.Err() == nil {
			q.log(slog.LevelWarn, "checking for the side queue of an older version failed", slog.Any("error", err))
		}
		return nil
	}
	cfg := q.cfg
	cfg.Workers, cfg.Prefetch, cfg.Levels, cfg.Fair, cfg.Bounds, cfg.Floor = 1, 1, nil, false, broker.Bounds{}, 0
	side := newQueue(q.c, q.name, q.name+sideSuffix, &cfg)
	_ = side.applySettings() // not open: there is no error
	if err := side.in.Open(ctx); err != nil {
		q.log(slog.LevelWarn, "the side queue of an older version is not consumed", slog.Any("error", err))
		return nil
	}
	return side
}
