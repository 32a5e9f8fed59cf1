package consumer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// A task that ends its process (a crash in C code, memory used up, os.Exit) would end one consumer after the other. What
// the broker tells is only that a message was handed out before; so was every neighbour that the dead process had fetched,
// and so is every message that a stop gives back. None of these may be given up for what another one did.
//
// So a task that was handed out before is not started. It is replaced by a copy whose envelope counts one crash more. When
// the count comes near the limit, the copy goes to a side queue, <queue>.suspects, of which every consumer holds one message
// at a time and starts it at once: there, handed out before means started before, and that alone gives a task up. While a
// suspect runs its consumer starts nothing else (alone.go), so that it does not pay for another task's crash either.

// suspects is what the side queue's name adds to its queue's.
const suspects = ".suspects"

// suspectsQueue returns the side queue of q: one worker, one message.
func (q *queue) suspectsQueue() *queue {
	cfg := q.cfg
	cfg.Workers, cfg.Prefetch, cfg.Levels = 1, 1, nil
	return &queue{fetch: q.fetch, c: q.c, name: q.name, source: q.name + suspects, suspects: true, cfg: cfg, meta: q.meta, prefetch: 1}
}

// suspect deals with a task that was handed out before.
func (r *run) suspect() {
	q := r.queue
	next := r.copy()
	if q.c.held(r.message) { // it was ours, and we are alive: the connection was cut
		q.c.settling.Go(func() { r.replace(q.source, next, time.Time{}, "copy after a cut") })
		return
	}
	q.c.cfg.Metrics.Crashes.Inc(1)
	limit := q.c.cfg.MaxCrashes
	next.Crashes++
	if q.suspects && next.Crashes >= limit {
		err := fmt.Errorf("%w: %d starts never ended, the last one alone in its consumer", task.ErrPoison, next.Crashes)
		r.log(slog.LevelError, "task given up", slog.Any("error", err))
		q.settleAside(r, verdict{kind: failed, err: err, bury: true})
		return
	}
	target := q.name
	if next.Crashes >= limit-1 {
		target = q.name + suspects
	}
	r.log(slog.LevelWarn, "task was held by a consumer that did not settle it", slog.Int("crashes", next.Crashes))
	q.c.settling.Go(func() { r.replace(target, next, time.Time{}, "crash count") })
}

// held reports whether this process ran or settled the message when the broker took it back: then it did not end the process.
func (c *Consumer) held(m *broker.Message) bool {
	if c.taken.has(m) {
		return true
	}
	for _, r := range c.running.all() {
		if r.message.ID == m.ID && r.message.Generation == m.Generation {
			return true
		}
	}
	return false
}
