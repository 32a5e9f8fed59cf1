package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// endJobTimeout bounds the word to a job that its task has ended. If it does not get through, the job's runner finds the record.
const endJobTimeout = 5 * time.Second

// endJob ends the job of a task with conditions, whose end is recorded and which is acknowledged: the next one may be waiting for it.
func (r *run) endJob(v verdict) {
	s := r.queue.c.cfg.Jobs
	if s == nil || len(r.request.Headers) == 0 || r.request.Headers[task.HeaderConditions] != string(r.request.ID) {
		return
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, endJobTimeout)
	defer cancel()
	failure := v.err
	if v.kind == succeeded {
		failure = nil
	}
	if err := s.TaskEnded(ctx, r.request.Name, r.request.ID, failure); err != nil {
		r.log(slog.LevelWarn, "the job of the task has not heard of its end; its runner will look for it", slog.Any("error", err))
	}
}
