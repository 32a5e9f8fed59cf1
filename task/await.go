package task

import "context"

// Await returns the answer for key, which comes from any process that knows the task's name and the
// key. Without an answer it returns an error. Return that error from the handler at once: the
// attempt ends, and the task waits without a worker, a goroutine or a message of the broker.
//
// When the answer comes it is stored under name, as a checkpoint. Then the handler runs again from
// its first line, and Await returns the answer:
//
//	d, err := task.Await[Decision](ctx, "decision", key, task.Requesting(ask))
//	if err != nil {
//		return err
//	}
//
// The next attempt counts no retry. Answers, keys and times are those of [Defer], where the answer
// becomes the result of the task.
//
// An answer that comes before the attempt has ended is kept. With [Requesting] the key is reserved,
// and an answer that was accepted continues the task, also after a retry. It is lost only if the
// task fails. Without Requesting an early answer is kept for jobs.Config.EarlyFor. Do not call
// [Expect] for the key of Await.
//
// A refusal is an error that matches [ErrRejected]. If no answer has come in time, the error
// matches [ErrAnswerTimeout]. Both stay stored as an answer does, so a retry gets the same error. A
// requeue of the dead letter waits again.
//
// A task waits for one key at a time. Of several calls in goroutines the first error that the
// handler returns counts.
//
// Returns these errors before the attempt ends to wait:
//
//   - [ErrNoAnswers] without consumer.Config.Deferrals.
//   - The errors of [Checkpoint] before fn, and of [Expect] and of the function of Requesting.
//   - [ErrBadCheckpoint], also if the answer is not a T.
//
// If the handler returns nil in spite of an error that ends the attempt, the task fails with
// ErrBadCheckpoint. Another error of the handler counts as usual. If the answer does not fit into
// the checkpoints of the task, the task fails with resultstore.ErrTooLarge. Safe for concurrent
// use.
func Await[T any](ctx context.Context, name, key string, opts ...DeferOption) (T, error) {
	var answer, none T
	c, err := checkpointer(ctx)
	if err != nil {
		return none, err
	}
	if _, ok := ctx.Value(expecterKey{}).(Expecter); !ok {
		return none, ErrNoAnswers
	}
	wait := &DeferVerdict{Key: key, Checkpoint: name}
	for _, o := range opts {
		o(wait)
	}
	if err := c.Await(ctx, wait, &answer); err != nil {
		return none, err
	}
	return answer, nil
}
