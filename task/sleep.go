package task

import (
	"context"
	"time"
)

// Sleep ends the attempt and continues the task after d. Meanwhile the task holds no worker and no
// goroutine, and the next attempt counts no retry. The first call stores the time of waking under
// name, as a checkpoint, and returns an error. Return that error from the handler at once: the
// attempt ends, and the task is queued until that time.
//
// Then the handler runs again from its first line, and Sleep returns nil. A later attempt before
// that time, for example after a crash, gets an error for the rest of the time:
//
//	if _, err := task.Checkpoint(ctx, "remind", remind); err != nil {
//		return err
//	}
//	if err := task.Sleep(ctx, "a week", 7*24*time.Hour); err != nil {
//		return err
//	}
//
// Later attempts ignore d. d of 0 or less does not wait. The longest sleep is [MaxTimeLimit]. The
// checkpoints of the task are kept until 30 days after the sleep. When it is over, the task ends if
// its Expires has passed, or if it was revoked and the bus still has the revocation.
//
// The returned error is a [*SnoozeVerdict], or one of the errors of [Checkpoint] before fn. If the
// handler returns nil in spite of it, the task fails with [ErrBadCheckpoint]. Another error of the
// handler counts as usual, and the stored time stays. Safe for concurrent use.
func Sleep(ctx context.Context, name string, d time.Duration) error {
	c, err := checkpointer(ctx)
	if err != nil {
		return err
	}
	return c.Sleep(ctx, name, d)
}
