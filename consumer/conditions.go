package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// TaskEnder hears of the end of tasks with conditions. Safe for concurrent use.
type TaskEnder interface {
	// TaskEnded says that the task id of a name has ended, and that its end is recorded; failure is
	// why it has failed, nil if it has not. A task that is not known is no error.
	TaskEnded(ctx context.Context, name string, id task.ID, failure error) error
}

// endJobTimeout bounds the word to a job that its task has ended. If it does not get through, the
// job's runner finds the record.
const endJobTimeout = 5 * time.Second

// errSealed stands for why a task has failed, where records of that are sealed: those of jobs are
// not.
var errSealed = errors.New("swarmiji: the reason is sealed")

// endJob ends the job of a task with conditions, whose end is recorded and which is acknowledged:
// the next one may be waiting for it.
func (r *run) endJob(v verdict) {
	s := r.queue.c.cfg.Jobs
	if s == nil || len(r.request.Headers) == 0 || r.request.Headers[task.HeaderConditions] != string(r.request.ID) {
		return
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, endJobTimeout)
	defer cancel()
	failure := v.err
	switch {
	case v.kind == succeeded:
		failure = nil
	case r.queue.c.cfg.Wire.Sealer != nil: // as in the record, where the runner would have found it
		failure = errSealed
	}
	if err := s.TaskEnded(ctx, r.request.Name, r.request.ID, failure); err != nil {
		r.log(slog.LevelWarn, "the job of the task has not heard of its end; its runner will look for it", slog.Any("error", err))
	}
}
