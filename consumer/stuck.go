package consumer

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// MaxStuck is how many handlers of a queue, or of a [Poll], may go on beyond their hard time limit while the workers take other
// tasks. Twice the number of workers, if that is more. Handlers that run when the bound is reached may still be added. At the
// bound the queue fetches nothing until a handler returns, what it fetched and did not start goes back for others, and the log
// says so.
const MaxStuck = 256

// stuck counts the handlers that go on beyond their hard time limit.
type stuck struct {
	total   atomic.Int64
	byQueue map[string]*atomic.Int64 // of every queue that is consumed; the map does not change
}

func newStuck(queues map[string]QueueConfig) stuck {
	by := make(map[string]*atomic.Int64, len(queues))
	for name := range queues {
		by[name] = new(atomic.Int64)
	}
	return stuck{byQueue: by}
}

// of returns how many handlers of a queue are stuck.
func (s *stuck) of(queue string) int {
	if n := s.byQueue[queue]; n != nil {
		return int(n.Load())
	}
	return 0
}

// timeLimit is [middleware.TimeLimit]. It counts and logs the handlers that go on beyond the limit.
func (c *Consumer) timeLimit(next task.Handler) task.Handler {
	stuck := c.countStuck
	return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
		return guard.Run(ctx, next, r, stuck)
	})
}

// countStuck counts a handler that goes on beyond its time limit, or has returned at last.
func (c *Consumer) countStuck(r *task.Request, delta int) {
	total := c.stuck.total.Add(int64(delta))
	if n := c.stuck.byQueue[r.Queue]; n != nil {
		n.Add(int64(delta))
	}
	c.cfg.Metrics.Stuck.Inc(int64(delta))
	level, msg := slog.LevelWarn, "handler goes on beyond its time limit; its worker takes other tasks"
	if delta < 0 {
		level, msg = slog.LevelInfo, "handler has returned long after its time limit"
	}
	c.cfg.Logger.LogAttrs(context.Background(), level, msg, slog.String(middleware.LogTaskID, string(r.ID)),
		slog.String(middleware.LogTask, r.Name), slog.String(middleware.LogQueue, r.Queue),
		slog.String(middleware.LogNode, c.cfg.Report.NodeID), slog.Int64("stuck", total))
}

// overrun reports whether so many handlers of the team are stuck that another task would only add
// to them.
func (t *team) overrun() bool {
	if t.c.stuck.total.Load() < MaxStuck {
		return false
	}
	n := 0
	for _, q := range t.queues {
		n += t.c.stuck.of(q.name)
	}
	return n >= max(MaxStuck, 2*t.workers())
}

// returnHeld gives back what the queues of a halted team hold and did not start: others may run it. It is repeated until the
// broker has heard that nothing more is to come.
func (t *team) returnHeld() {
	var gap task.Backoff
	for attempt := 0; t.halted.Load() && t.fetch.Err() == nil; attempt++ {
		err := each(t.queues, func(q *queue, ctx context.Context) error {
			if !t.halted.Load() || q.gate.shut.Load() {
				return nil
			}
			return q.returnAll(ctx)
		})
		if err == nil {
			return
		}
		t.log(slog.LevelWarn, "giving back what was fetched is repeated", slog.Any("error", err))
		wake.Sleep(t.fetch, gap.Interval(attempt))
	}
}

// fetchAgain has the queues of a team that was halted fetch as before.
func (t *team) fetchAgain() {
	for _, q := range t.queues {
		q.control.Lock()
		q.tellLater()
		q.control.Unlock()
	}
}
