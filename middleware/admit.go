package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// Admit decides whether a task may start now. A consumer calls it when a worker is free, before the
// handler and all its middleware. For a task that runs at most once it is called before the task is
// acknowledged. Admit must be safe for concurrent use.
//
// With a nil error the task may start. If release is not nil, the consumer calls it once, when the
// handler has returned or the task did not start.
//
// With an error the task does not start, and the error is its outcome, as if the handler had
// returned it: [task.Snooze] delays it, [task.Fail] fails it. No start is counted, and no event or
// hook runs.
//
// ctx ends when the consumer stops immediately or the broker takes the task back.
type Admit func(ctx context.Context, r *task.Request) (release func(), err error)
