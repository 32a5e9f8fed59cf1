package task

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// DefaultAnswerWithin is how long an answer from outside is awaited where [AnswerWithin] says nothing.
const DefaultAnswerWithin = 24 * time.Hour

// DeferVerdict is the error made by [Defer].
type DeferVerdict struct {
	Key     string             // what the answer names the task by, together with the task's name; "": the key given to [Expect]
	Timeout Opt[time.Duration] // how long the answer is awaited; unset: [DefaultAnswerWithin]
}

// DeferOption sets something on a [DeferVerdict].
type DeferOption func(*DeferVerdict)

// AnswerWithin sets how long the answer is awaited, from the end of the run. When none has come by then the attempt fails with
// [ErrAnswerTimeout]. 0 or less means that it fails at once, unless the answer is there.
func AnswerWithin(d time.Duration) DeferOption {
	return func(v *DeferVerdict) { v.Timeout = Set(max(d, 0)) }
}

// Defer ends the run and not the task: its answer comes from outside, from any process, and names the task by its name and
// key. Meanwhile the task holds no worker, no goroutine and no place in the broker. The answer becomes the task's result; a refusal fails
// the attempt with [ErrRejected], and no answer in time with [ErrAnswerTimeout], both of which a [RetryPolicy] can name. What the
// handler returns besides is not used.
//
// A key has at most 512 bytes of text. While one task of a name awaits the answer for a key no other one can.
// An answer that is faster than the return of the handler is kept for a while, but better is to say [Expect] before the request is sent. Where nothing
// is configured that can wait for answers the task fails with [ErrNoAnswers].
func Defer(key string, opts ...DeferOption) error {
	v := &DeferVerdict{Key: key}
	for _, o := range opts {
		o(v)
	}
	return v
}

// Error says for which answer the task waits.
func (v *DeferVerdict) Error() string {
	if v.Key == "" {
		return "swarmiji: deferred until its answer comes"
	}
	return "swarmiji: deferred until the answer for " + utf.Cut(v.Key, 64) + " comes"
}

// Expecter registers what answers from outside the running task expects. Who runs handlers puts one into their contexts, with [WithExpecter].
type Expecter interface {
	// Expect is [Expect] for the task that the context belongs to.
	Expect(ctx context.Context, key string) error
}

type expecterKey struct{}

// WithExpecter returns a context in which [Expect] asks e.
func WithExpecter(ctx context.Context, e Expecter) context.Context {
	return context.WithValue(ctx, expecterKey{}, e)
}

// Expect says that from now on an answer for key is for the task that runs with ctx: a handler says so before it sends its request, and
// ends with [Defer]. When it returns nil that is on disk, so that an answer cannot come too early. Said again with another key, the
// last one counts. Where answers cannot be awaited, also outside of a handler, the error is [ErrNoAnswers].
//
// What the handler ends with decides about an answer that was accepted before:
//
//   - Defer, an error, a panic, [Retry], [Snooze], [Fail]: the answer counts, and there is no further attempt.
//   - nil: the handler's result counts. It expects nothing any more.
func Expect(ctx context.Context, key string) error {
	e, ok := ctx.Value(expecterKey{}).(Expecter)
	if !ok {
		return ErrNoAnswers
	}
	return e.Expect(ctx, key)
}

// Rejected returns the failure of an attempt whose answer was a refusal: a [*RemoteError] that is [ErrRejected] and whose message is the
// reason.
func Rejected(reason string) error {
	r := &RemoteError{Type: typeRejected, Message: utf.Cut(reason, MaxErrorText)}
	if r.Message == "" {
		r.Message = ErrRejected.Error()
	}
	return r
}

const typeRejected = "swarmiji.Rejected" // of ErrRejected on the wire

// Errors of answers from outside.
var (
	// ErrNoAnswers: answers from outside cannot be awaited here. The call is outside of a handler,
	// or the consumer has no Config.Deferrals.
	ErrNoAnswers = errors.New("swarmiji: answers from outside cannot be awaited outside of a running handler or without consumer.Config.Deferrals")
	// ErrAnswerTimeout: no answer came in time.
	ErrAnswerTimeout = errors.New("swarmiji: no answer came in time")
	// ErrRejected: the answer was a refusal. In a [*RemoteError] that is this the message is the reason that was given.
	ErrRejected = errors.New("swarmiji: the answer was a refusal")
)
