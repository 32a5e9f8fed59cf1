package crashes

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

const (
	// fewestCrashes is the smallest effective MaxCrashes: the first start is not noted, and the second
	// one is not in quarantine.
	fewestCrashes = 3
	// noteRetryDelay is the time between two attempts to note a start.
	noteRetryDelay = time.Second
	// noteTimeout limits one attempt to note or to clear a start.
	noteTimeout = 2 * time.Second
)

// Note stores a note of the start of a redelivered task with the broker, as the last step before
// the handler. It keeps the note in the State of r, and a repeated call stores the same one. From
// then on Leave tells the broker about the end of this node. It also reads the notes of earlier
// starts. It blocks for at most noteTimeout, or twice that to clear its note. start reports whether
// the handler may run.
//
//   - There is no Witness, no message id, or the broker cannot keep the note: start is true. In the
//     last case it calls Unsupported.
//   - The task must not start any more: Note gives it back on another goroutine.
//   - Another error: it is logged, and later starts the task again after noteRetryDelay.
//   - It is unknown whether an earlier start ended its process: this start's note is cleared, and
//     later waits for that verdict.
//   - Otherwise mayStart decides: start, quarantine or dead letter.
//
// If later is not nil, remove the run from the running ones and call later on another goroutine. If
// start is false and later is nil, another goroutine gives the task back or dead-letters it.
func (w *Watch) Note(r Run) (start bool, later func()) {
	queue, m := r.Message()
	if w.cfg.Witness == nil || m.ID == "" { // notes belong to a message id
		return true, nil
	}
	ctx, done := r.WaitContext()
	defer done()
	state := r.State()
	s := state.note.Load()
	if s == nil {
		// only this run: another suspect may have exceeded its time
		quarantined := state.suspect && w.cfg.Running() == 1
		s = &broker.Start{ID: m.ID, Generation: m.Generation, Nonce: rand.Text(), Node: w.cfg.Node, Alone: quarantined, At: time.Now()}
		state.note.Store(s)
	}
	asking, cancel := context.WithTimeout(ctx, noteTimeout)
	earlier, err := w.cfg.Witness.NoteStart(asking, queue, *s)
	cancel()
	w.noted.Store(true)
	switch {
	case err == nil:
	case errors.Is(err, broker.ErrUnsupported), errors.Is(err, broker.ErrMalformed), errors.Is(err, broker.ErrAccess):
		w.cfg.Unsupported(err)
		return true, nil
	case ctx.Err() != nil: // a stop, a pause, or the broker has taken the task back
		r.GiveBack()
		return false, nil
	default:
		r.Log(slog.LevelWarn, "noting a start failed; it is repeated", slog.Any("error", err))
		return false, func() { repeatLater(r) }
	}
	if open := w.openStarts(earlier); len(open) > 0 {
		w.Clear(ctx, r)
		return false, func() { w.awaitVerdicts(r, open, earlier) }
	}
	return w.mayStart(ctx, r, earlier)
}

// repeatLater waits for noteRetryDelay and then starts the task, whose start could not be noted. It
// returns after the handler. If the task must not start any more, it does not wait, and Start gives
// the task back. The task counts as reserved during the wait. It runs on its own goroutine and
// holds no worker.
func repeatLater(r Run) {
	ctx, done := r.WaitContext()
	r.Reserve(true)
	wake.Sleep(ctx, noteRetryDelay)
	r.Reserve(false)
	done()
	r.Start()
}

// openStarts returns pointers to those notes of starts by other nodes that have no verdict yet.
// Notes of this node need no verdict, since it is alive.
func (w *Watch) openStarts(notes []broker.Start) (open []*broker.Start) {
	for i := range notes {
		if s := &notes[i]; s.Verdict == broker.StartOpen && s.Node != w.cfg.Node {
			open = append(open, s)
		}
	}
	return open
}

// mayStart decides by the earlier starts of a redelivered task whether its handler may run now.
// Each of them has a verdict: a death, if it ended its process.
//
//   - There were MaxCrashes-1 deaths or more, at least two, and the last death was in quarantine.
//     It logs that and dead-letters the task on another goroutine: start is false, later nil.
//   - Otherwise, if there was a death and r is not a suspect yet, it marks r as a suspect. It
//     clears the note of this start with the broker. start is false, and later starts r in
//     quarantine.
//   - In all other cases start is true.
func (w *Watch) mayStart(ctx context.Context, r Run, earlier []broker.Start) (start bool, later func()) {
	deaths, quarantined := 0, false
	for i := range earlier {
		if earlier[i].Verdict == broker.StartDied {
			deaths++
			quarantined = earlier[i].Alone
		}
	}
	state := r.State()
	switch {
	case quarantined && deaths >= max(w.cfg.MaxCrashes, fewestCrashes)-1:
		err := fmt.Errorf("%w: %d starts ended their consumer's process, the last one in quarantine", task.ErrPoison, deaths)
		r.Log(slog.LevelError, "the task is dead-lettered as poison", slog.Any("error", err))
		r.DeadLetter(err)
		return false, nil
	case deaths > 0 && !state.suspect:
		state.suspect = true
		w.Clear(ctx, r)
		return false, r.Start
	}
	return true, nil
}

// awaitVerdicts blocks until the open starts have verdicts, and stores these with the broker. It
// counts and logs deaths. open points into earlier, which holds all earlier starts. The task counts
// as reserved meanwhile and holds no worker.
//
// It then starts the task, dead-letters it or runs it in quarantine, and returns after the handler.
// If the task must not start any more or a verdict cannot be stored, it gives the task back.
func (w *Watch) awaitVerdicts(r Run, open []*broker.Start, earlier []broker.Start) {
	ctx, done := r.WaitContext()
	defer done()
	r.Reserve(true)
	for _, s := range open {
		waits := func() {
			r.Log(slog.LevelWarn, "the task waits until its former consumer is known to be dead",
				slog.Duration("at_most", w.cfg.AbsentAfter), slog.String("former_node", s.Node))
		}
		if s.Verdict = w.nodes.verdict(ctx, w, s.Node, waits); s.Verdict == broker.StartOpen || w.storeVerdict(ctx, r, *s) != nil {
			r.Reserve(false)
			r.GiveBack()
			return
		}
		if s.Verdict == broker.StartDied {
			w.cfg.Died()
			r.Log(slog.LevelWarn, "a consumer died after it had started the task", slog.String("dead_node", s.Node), slog.Time("started", s.At))
		}
	}
	r.Reserve(false)
	switch start, later := w.mayStart(ctx, r, earlier); {
	case start:
		r.Start()
	case later != nil:
		later()
	}
}

// storeVerdict stores the verdict on a start with the broker, so that no other consumer waits for
// it. It blocks and repeats that until it succeeds, the broker has taken the task back, or ctx
// ends. It logs the first error and returns the last one.
func (w *Watch) storeVerdict(ctx context.Context, r Run, s broker.Start) error {
	queue, _ := r.Message()
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := w.cfg.Witness.JudgeStart(ctx, queue, s)
		if err == nil || broker.Gone(err) {
			return err
		}
		if attempt == 0 {
			r.Log(slog.LevelWarn, "storing the verdict on a start failed; it is repeated", slog.Any("error", err))
		}
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return err
		}
	}
}

// Clear stores with the broker that this run's start has not ended the process. It does nothing if
// the run has no note. It tries once, for at most noteTimeout, and forgets the note in any case. An
// error is logged: a consumer that reads the note later gives the verdict.
func (w *Watch) Clear(ctx context.Context, r Run) {
	s := r.State().note.Swap(nil)
	if s == nil {
		return
	}
	cleared := *s
	cleared.Verdict = broker.StartCleared
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	queue, _ := r.Message()
	if err := w.cfg.Witness.JudgeStart(ctx, queue, cleared); err != nil {
		r.Log(slog.LevelInfo, "the note of a start was not cleared", slog.Any("error", err))
	}
}
