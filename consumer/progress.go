package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/progress"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// ReportProgress implements [task.Progressor]. It stores p and does not block. A goroutine passes
// the last value to sendProgress, at most once a second, until the handler has returned.
func (r *run) ReportProgress(p task.ProgressValue) {
	if r.progress.Load() == nil {
		r.progress.CompareAndSwap(nil, progress.New(r.sendProgress))
	}
	if !r.returned.Load() {
		r.progress.Load().Report(p)
	}
}

// sendProgress sends the event of p, and stores p in the record of the task if its store keeps
// records. The note is left out if results are sealed. It tries once; an error is logged.
func (r *run) sendProgress(ctx context.Context, p task.ProgressValue) {
	c := r.queue.c
	if c.cfg.Wire.Sealer != nil {
		p.Note = ""
	}
	if c.cfg.Events != nil {
		c.publish(&events.Event{Type: events.TaskProgress, TaskID: r.request.ID, Time: p.At, Fields: r.info().Fields(events.ProgressFields(p))})
	}
	store := r.store()
	if store == nil || resultstore.RepliesOnly(store) {
		return
	}
	rec := r.record(task.StateStarted, verdict{}, time.Time{})
	rec.Progress = p
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := store.Save(ctx, rec); err != nil && ctx.Err() == nil {
		r.log(slog.LevelDebug, "the progress of a task was not stored", slog.Any("error", err))
	}
}

// endProgress ends the reports of the handler and returns the last one, or the zero value if the
// handler has reported no progress. It waits for a report that is being sent, whose context ends.
func (r *run) endProgress() (last task.ProgressValue) {
	if reporter := r.progress.Load(); reporter != nil {
		last = reporter.Close()
	}
	if r.queue.c.cfg.Wire.Sealer != nil {
		last.Note = ""
	}
	return last
}
