package consumer

import (
	"context"
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
// at a time and starts it at once: there, handed out before means started before, and that alone gives a task up.

// suspects is what the side queue's name adds to its queue's.
const suspects = ".suspects"

// suspectsQueue returns the side queue of q: one worker, one message.
func (q *queue) suspectsQueue() *queue {
	cfg := q.cfg
	cfg.Workers, cfg.Prefetch, cfg.Levels = 1, 1, nil
	return &queue{c: q.c, name: q.name, source: q.name + suspects, suspects: true, cfg: cfg, meta: q.meta}
}

// suspect deals with a task that was handed out before.
func (r *run) suspect() {
	q := r.queue
	q.c.cfg.Metrics.Crashes.Inc(1)
	limit := q.c.cfg.MaxCrashes
	next := r.copy()
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

// returnSuspects gives back, as copies, what the subscription holds and no worker has started, so that the broker's count
// of deliveries is not raised by a stop.
func (q *queue) returnSuspects(ctx context.Context) {
	if ok, err := broker.SetPrefetch(ctx, q.sub, 0); !ok || err != nil {
		return
	}
	done, cancel := context.WithCancel(ctx)
	cancel() // Receive hands out what is held even so
	for {
		d, err := q.sub.Receive(done)
		if err != nil {
			return
		}
		r, err := q.read(d, 0)
		if err != nil {
			q.buryUnreadable(d, err)
			continue
		}
		if err := r.giveBack(ctx); err != nil && !broker.Gone(err) {
			r.log(slog.LevelWarn, "task not given back; the broker will notice", slog.Any("error", err))
		}
	}
}
