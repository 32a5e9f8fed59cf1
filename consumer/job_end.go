package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// TaskEnder is told about the end of tasks with conditions ([task.Conditions]). Safe for concurrent
// use.
type TaskEnder interface {
	// TaskEnded reports that the task with this name and id has ended and that its end is recorded.
	// failure is the reason of a failed task, else nil. Returns nil for an unknown task.
	TaskEnded(ctx context.Context, name string, id task.ID, failure error) error
}

// endJobTimeout limits a call of TaskEnded. If the call fails, the runner of jobs finds the task's
// record later.
const endJobTimeout = 5 * time.Second

// errSealed replaces the reason of a failure when records are sealed, since the records of jobs are
// not sealed.
var errSealed = errors.New("swarmiji: the reason is sealed")

// hasJob reports whether the task has conditions and Config.Jobs is told about its end.
func (r *run) hasJob() bool {
	return r.queue.c.cfg.Jobs != nil && len(r.request.Headers) > 0 && r.request.Headers[task.HeaderConditions] == string(r.request.ID)
}

// endJob reports the end of a task with conditions to Config.Jobs, because the next task may wait
// for that end. It does nothing for other tasks, or without Config.Jobs. It calls TaskEnded once
// and blocks for at most endJobTimeout. An error is only logged: the runner of jobs finds the
// record later.
//
// v is the end of the task. With Wire.Sealer the reported failure has no reason. Call endJob after
// the end is recorded and the message is acknowledged.
func (r *run) endJob(v verdict) {
	if !r.hasJob() {
		return
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, endJobTimeout)
	defer cancel()
	failure := v.err
	switch {
	case v.kind == succeeded:
		failure = nil
	// the runner would find the same sealed reason in the record
	case r.queue.c.cfg.Wire.Sealer != nil:
		failure = errSealed
	}
	if err := r.queue.c.cfg.Jobs.TaskEnded(ctx, r.request.Name, r.request.ID, failure); err != nil {
		r.log(slog.LevelWarn, "the end of the task was not reported to its job; the runner of jobs will find it", slog.Any("error", err))
	}
}
