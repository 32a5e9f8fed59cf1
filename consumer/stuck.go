package consumer

import (
	"context"
	"log/slog"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// MaxStuck limits the number of stuck handlers of a queue, or of a [Poll]: handlers that have not
// returned a second after their hard time limit. Meanwhile the workers take other tasks. If twice
// the number of workers is larger, that is the limit.
//
// At the limit the queue stops fetching until a handler returns, gives back fetched tasks that have
// not started, and logs that. Handlers that run at this moment may exceed the limit.
const MaxStuck = 256

// timeLimit is the middleware that applies the time limits of a task, see [middleware.TimeLimit]. A
// handler that has not returned a second after its hard limit is stuck: its worker takes other
// tasks. timeLimit counts the handler as stuck until it returns, and logs both.
func (c *Consumer) timeLimit(next task.Handler) task.Handler {
	stuck := c.countStuck
	return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
		return guard.Run(ctx, next, r, stuck)
	})
}

// countStuck adds delta to the counts of stuck handlers, in total, of the queue and in the metrics,
// and logs the change. delta is 1 when a handler becomes stuck and -1 when it returns.
func (c *Consumer) countStuck(r *task.Request, delta int) {
	total := c.stuck.Add(r.Queue, delta)
	c.cfg.Metrics.Stuck.Inc(int64(delta))
	level, msg := slog.LevelWarn, "handler runs beyond its hard time limit; its worker takes other tasks"
	if delta < 0 {
		level, msg = slog.LevelInfo, "handler has returned after its hard time limit"
	}
	c.cfg.Logger.LogAttrs(context.Background(), level, msg, slog.String(middleware.LogTaskID, string(r.ID)),
		slog.String(middleware.LogTask, r.Name), slog.String(middleware.LogQueue, r.Queue),
		slog.String(middleware.LogNode, c.cfg.Report.NodeID), slog.Int64("stuck", total))
}

// tooManyStuck returns a function that reports whether too many handlers of the queues are stuck:
// [MaxStuck] or more, or twice the number of workers if that is more. Its argument is the workers
// of these queues.
func (c *Consumer) tooManyStuck(queues []*queue) func(*intake.Workers) bool {
	return func(t *intake.Workers) bool {
		if c.stuck.Total() < MaxStuck {
			return false
		}
		n := 0
		for _, q := range queues {
			n += c.stuck.Of(q.name)
		}
		return n >= max(MaxStuck, 2*t.Count())
	}
}
