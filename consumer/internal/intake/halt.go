package intake

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// haltPoll sets the time between two checks of a halted worker whether it may fetch again.
const haltPoll = 100 * time.Millisecond

// ready reports whether the worker may fetch another message. It blocks while the workers of its
// set are overloaded (too many handlers ignore their time limit). It returns false when the worker
// must leave: it was removed, or fetching stops.
//
// The first worker that finds them overloaded halts all of them: fetching stops, and another
// goroutine gives fetched messages back. The first one that finds them no longer overloaded resumes
// fetching. Both are logged.
func (w *worker) ready() bool {
	t := w.set
	for w.ctx.Err() == nil {
		if !t.cfg.Overloaded(t) {
			if t.halted.Load() && t.halted.CompareAndSwap(true, false) {
				t.log(slog.LevelInfo, "fetching resumes: a handler that ignored its time limit has returned")
				t.resumeFetching()
			}
			return true
		}
		if t.halted.CompareAndSwap(false, true) {
			t.log(slog.LevelError, "fetching stops: too many handlers ignore their time limit")
			t.queues[0].cfg.Go(t.returnHeld)
		}
		wake.Sleep(w.ctx, haltPoll)
	}
	return false
}

// returnHeld gives back the messages that the queues of t have fetched and not started, while t is
// halted. Paused queues are skipped. It blocks and repeats that until the broker has accepted it,
// the workers resume, or fetching stops. Errors are logged. It takes the control lock of each
// queue.
func (t *Workers) returnHeld() {
	var gap task.Backoff
	for attempt := 0; t.halted.Load() && t.fetch.Err() == nil; attempt++ {
		err := each(t.queues, func(q *Queue, ctx context.Context) error {
			if !t.halted.Load() || q.gate.shut.Load() {
				return nil
			}
			return q.returnAll(ctx)
		})
		if err == nil {
			return
		}
		t.log(slog.LevelWarn, "giving back fetched tasks failed; it is repeated", slog.Any("error", err))
		wake.Sleep(t.fetch, gap.Interval(attempt))
	}
}

// resumeFetching sets the prefetch of the queues again, after the workers were halted. It does not
// wait: other goroutines repeat that until it succeeds. It takes the control lock of each queue.
func (t *Workers) resumeFetching() {
	for _, q := range t.queues {
		q.control.Lock()
		q.setPrefetchLater()
		q.control.Unlock()
	}
}
