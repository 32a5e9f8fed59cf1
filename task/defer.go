package task

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// DefaultAnswerWithin is the default of [AnswerWithin].
const DefaultAnswerWithin = 24 * time.Hour

// DeferVerdict is the error that [Defer] returns, and [Await] without an answer.
type DeferVerdict struct {
	// with the task's name, the key of the answer; "": the key given to [Expect]
	Key     string
	Timeout Opt[time.Duration] // how long to wait for the answer; default: [DefaultAnswerWithin]
	// the name of Await: the answer is stored there and the task runs again; "": it is the result
	Checkpoint string
	// called by Await after it has reserved the key, see [Requesting]; may be nil
	Request func(ctx context.Context) error
}

// DeferOption sets something on a [DeferVerdict].
type DeferOption func(*DeferVerdict)

// AnswerWithin sets how long the task waits for the answer, from the return of its handler. Without
// an answer the attempt then fails with [ErrAnswerTimeout]. 0 or less: it fails at once, unless the
// answer has come already.
func AnswerWithin(d time.Duration) DeferOption {
	return func(v *DeferVerdict) { v.Timeout = Set(max(d, 0)) }
}

// Requesting gives [Await] a function that sends the request for the answer. Await reserves the key
// first, so that no answer can come too early. Its error is returned by Await, and the reservation
// ends with the attempt. fn runs again if the process dies before the attempt has ended. Defer
// ignores this option: its handlers call [Expect].
func Requesting(fn func(ctx context.Context) error) DeferOption {
	return func(v *DeferVerdict) { v.Request = fn }
}

// Defer returns an error that ends the attempt but not the task: the result comes later as an
// answer from any process, which names the task by its name and key. Meanwhile the task holds no
// worker, no goroutine and no message of the broker.
//
// The answer becomes the task's result. The attempt fails with [ErrRejected] if the answer is a
// refusal, and with [ErrAnswerTimeout] if no answer comes in time. A [RetryPolicy] can name both.
// The result value of the handler is ignored.
//
// A key has at most 512 bytes of text. For each task name, only one task at a time can wait for a
// key. An answer that comes before the handler has returned is kept for a while; call [Expect]
// before the request is sent to be sure. Without a store of deferrals the task fails with
// [ErrNoAnswers].
func Defer(key string, opts ...DeferOption) error {
	v := &DeferVerdict{Key: key}
	for _, o := range opts {
		o(v)
	}
	return v
}

// Error returns a text with the key of the expected answer.
func (v *DeferVerdict) Error() string {
	if v.Key == "" {
		return "swarmiji: deferred until its answer comes"
	}
	return "swarmiji: deferred until the answer for " + utf.Cut(v.Key, 64) + " comes"
}

// Expecter stores which answer from outside the running task expects. Consumers put one into the
// contexts of handlers with [WithExpecter].
type Expecter interface {
	// Expect implements the function [Expect] for the task of the context.
	Expect(ctx context.Context, key string) error
}

type expecterKey struct{}

// WithExpecter returns a context in which [Expect] calls e.
func WithExpecter(ctx context.Context, e Expecter) context.Context {
	return context.WithValue(ctx, expecterKey{}, e)
}

// Expect reserves key for the answer to the task that runs with ctx. A handler calls it before it
// sends its request, and ends with [Defer]. When Expect has returned nil the reservation is stored,
// so the answer cannot come too early. A second call replaces the key.
//
// Returns [ErrNoAnswers] outside of a handler and without a store of deferrals.
//
// The end of the handler decides about an answer that was accepted before:
//
//   - Defer, an error, a panic, [Retry], [Snooze], [Fail]: the answer settles the task. There is no
//     further attempt.
//   - nil: the handler's result counts, and the reservation is deleted.
func Expect(ctx context.Context, key string) error {
	e, ok := ctx.Value(expecterKey{}).(Expecter)
	if !ok {
		return ErrNoAnswers
	}
	return e.Expect(ctx, key)
}

// Rejected returns the error of an attempt whose answer was a refusal: a [*RemoteError] that
// matches [ErrRejected], with reason as its message.
func Rejected(reason string) error {
	r := &RemoteError{Type: typeRejected, Message: utf.Cut(reason, MaxErrorText)}
	if r.Message == "" {
		r.Message = ErrRejected.Error()
	}
	return r
}

const typeRejected = "swarmiji.Rejected" // type of ErrRejected on the wire

// Errors of answers from outside.
var (
	// ErrNoAnswers is returned by Expect outside of a handler, or if the consumer has no
	// Config.Deferrals.
	ErrNoAnswers = errors.New("swarmiji: cannot wait for answers outside of a handler or without consumer.Config.Deferrals")
	// ErrAnswerTimeout is the error of an attempt whose answer did not come in time.
	ErrAnswerTimeout = errors.New("swarmiji: no answer came in time")
	// ErrRejected is the error of an attempt whose answer was a refusal. The message of the
	// [*RemoteError] is the reason of the refusal.
	ErrRejected = errors.New("swarmiji: the answer was a refusal")
)
