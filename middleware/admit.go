package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// Admit decides whether a task may start now. A consumer asks it when a worker is free, before the handler and all middleware
// around it, and before it acknowledges a task that runs at most once. It is called from many goroutines.
//
// Nil error: the task may start. release, if it is not nil, is then called once, when the handler has returned or the
// task did not start after all. An error is the task's outcome, as if its handler had returned it: [task.Snooze] puts it
// back for a time, [task.Fail] ends it. No start is counted, and no event or hook tells of one.
//
// ctx ends when the consumer stops at once or the broker takes the task back.
type Admit func(ctx context.Context, r *task.Request) (release func(), err error)
