package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// A task that ends its process (a crash in C code, memory used up, os.Exit) would end one consumer
// after the other. What a broker tells is only that a message was handed out before. So was every
// message beside it, and so is every message that a stop, a cut connection or a lost lease gives
// back. None of these may count.
//
// So a broker that is a [broker.Witness] keeps notes of starts. The first start of a message writes
// none. Each later start writes one immediately before the handler, and reads the earlier ones. A
// note whose node is still there, or has left in order, is cleared. A note whose node is absent for
// Tuning.AbsentAfter without a break is a death. After one death the task runs in quarantine; after
// the last one that MaxCrashes allows, in quarantine, it goes to the dead letters.
//
// A retry, a snooze and a requeued letter have another generation, and with it no notes.

// fewestCrashes is the smallest MaxCrashes that can be told: the first start is not noted, the
// second is not alone.
const fewestCrashes = 3

// noteAgain is after how long a start is noted again that could not be noted.
const noteAgain = time.Second

// noteStart notes the start of a task that was handed out before, as the last step before the
// handler, and reports whether the handler may start. If not, the task is settled or given back, or
// later goes on with it. Call later when the run is no longer among those that run.
func (r *run) noteStart() (start bool, later func()) {
	q, c := r.queue, r.queue.c
	if r.request.Deliveries <= 1 || c.witness == nil || r.message.ID == "" { // without an id nothing can be told of it
		return true, nil
	}
	ctx, done := q.while(r)
	defer done()
	s := r.note.Load()
	if s == nil {
		alone := r.suspect && c.running.Len() == 1 // itself: another suspect may have outlasted its time
		s = &broker.Start{ID: r.message.ID, Generation: r.message.Generation, Nonce: rand.Text(), Node: c.incarnation, Alone: alone, At: time.Now()}
		r.note.Store(s)
	}
	asking, cancel := context.WithTimeout(ctx, loadTimeout)
	earlier, err := c.witness.NoteStart(asking, q.source, *s)
	cancel()
	c.noted.Store(true)
	switch {
	case err == nil:
	case errors.Is(err, broker.ErrUnsupported), errors.Is(err, broker.ErrMalformed), errors.Is(err, broker.ErrAccess):
		c.warnOnce("witness", "starts cannot be noted; a task that ends its process is not found out", slog.Any("error", err))
		return true, nil
	case ctx.Err() != nil: // a stop, a pause, or the broker has the task back
		r.unstarted()
		return false, nil
	default:
		r.log(slog.LevelWarn, "noting a start is repeated", slog.Any("error", err))
		return false, r.noteLater
	}
	if open := c.openStarts(earlier); len(open) > 0 {
		r.clearNote(ctx)
		return false, func() { r.awaitVerdicts(open, earlier) }
	}
	return r.mayStart(ctx, earlier)
}

// noteLater goes on with a run whose start could not be noted, such as during an alarm. It holds no
// worker meanwhile.
func (r *run) noteLater() {
	ctx, done := r.queue.while(r)
	r.queue.c.reserved.Add(r)
	wake.Sleep(ctx, noteAgain)
	r.queue.c.reserved.Remove(r)
	done()
	r.queue.start(r)
}

// openStarts returns the notes of other nodes that nobody has judged. This node lives.
func (c *Consumer) openStarts(notes []broker.Start) (open []*broker.Start) {
	for i := range notes {
		if s := &notes[i]; s.Verdict == broker.StartOpen && s.Node != c.incarnation {
			open = append(open, s)
		}
	}
	return open
}

// mayStart reports whether a task with these earlier starts may start as it is. If not, it is
// dead-lettered, or later goes on with it as a suspect.
func (r *run) mayStart(ctx context.Context, earlier []broker.Start) (start bool, later func()) {
	q := r.queue
	deaths, alone := 0, false
	for i := range earlier {
		if earlier[i].Verdict == broker.StartDied {
			deaths++
			alone = earlier[i].Alone
		}
	}
	switch {
	case alone && deaths >= max(q.c.cfg.Tuning.MaxCrashes, fewestCrashes)-1:
		err := fmt.Errorf("%w: %d starts ended their consumer's process, the last one alone in it", task.ErrPoison, deaths)
		r.log(slog.LevelError, "task given up", slog.Any("error", err))
		q.settleAside(r, verdict{kind: failed, err: err, bury: true})
		return false, nil
	case deaths > 0 && !r.suspect:
		r.suspect = true
		r.clearNote(ctx)
		return false, func() { q.start(r) }
	}
	return true, nil
}

// awaitVerdicts judges the open ones of earlier starts, and goes on with the run. The task holds no
// worker meanwhile.
func (r *run) awaitVerdicts(open []*broker.Start, earlier []broker.Start) {
	q, c := r.queue, r.queue.c
	ctx, done := q.while(r)
	defer done()
	c.reserved.Add(r)
	for _, s := range open {
		if s.Verdict = c.nodes.judge(ctx, q.fetch, c, s.Node); s.Verdict == broker.StartOpen || r.storeVerdict(ctx, *s) != nil {
			c.reserved.Remove(r)
			r.unstarted()
			return
		}
		if s.Verdict == broker.StartDied {
			c.cfg.Metrics.Crashes.Inc(1)
			r.log(slog.LevelWarn, "a consumer that had started the task died", slog.String("dead_node", s.Node), slog.Time("started", s.At))
		}
	}
	c.reserved.Remove(r)
	switch start, later := r.mayStart(ctx, earlier); {
	case start:
		q.start(r)
	case later != nil:
		later()
	}
}

// storeVerdict stores the verdict on a start, so that no other consumer has to wait for it.
func (r *run) storeVerdict(ctx context.Context, s broker.Start) error {
	return repeat(ctx, r.lost(), func(ctx context.Context) error {
		return r.queue.c.witness.JudgeStart(ctx, r.queue.source, s)
	}, func(err error) {
		r.log(slog.LevelWarn, "the verdict on a start is stored again", slog.Any("error", err))
	})
}

// clearNote stores that the run's own start did not end this process. If that fails, a consumer
// that reads the note judges it.
func (r *run) clearNote(ctx context.Context) {
	s := r.note.Swap(nil)
	if s == nil {
		return
	}
	cleared := *s
	cleared.Verdict = broker.StartCleared
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := r.queue.c.witness.JudgeStart(ctx, r.queue.source, cleared); err != nil {
		r.log(slog.LevelInfo, "the note of a start stays open", slog.Any("error", err))
	}
}

// leave tells the broker that this node ends in order, if it has noted a start.
func (c *Consumer) leave() {
	if !c.noted.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.work), c.cfg.Tuning.KillGrace)
	defer cancel()
	if err := c.witness.Leave(ctx, c.incarnation); err != nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the broker was not told that this consumer ends; a task that it had started may count one crash",
			slog.Any("error", err))
	}
}
