package task

import (
	"errors"
	"time"
)

// The verdicts are errors that a handler returns. They are carried out in one place, the consumer's settlement; making
// one does nothing by itself, so that outside a handler nothing is sent.

// RetryVerdict is the error made by [Retry].
type RetryVerdict struct {
	Cause error              // why; may be nil
	Delay Opt[time.Duration] // unset: the task's RetryDelay
	Limit Opt[int]           // unset: the task's MaxRetries
}

// RetryOption sets something on a [RetryVerdict].
type RetryOption func(*RetryVerdict)

// After sets the delay before the next attempt; 0 means at once, negative counts as 0.
func After(d time.Duration) RetryOption { return func(v *RetryVerdict) { v.Delay = Set(max(d, 0)) } }

// AtMost sets the limit of retries for this decision; negative means no limit.
func AtMost(n int) RetryOption { return func(v *RetryVerdict) { v.Limit = Set(n) } }

// Retry ends the run and runs the task again later: a new message with the same id, to the same queue, with one retry
// more. The submitter's future waits for the final outcome. When the limit is used up the task fails with cause, or with
// [ErrMaxRetries] when cause is nil.
func Retry(cause error, opts ...RetryOption) error {
	v := &RetryVerdict{Cause: cause}
	for _, o := range opts {
		o(v)
	}
	return v
}

// Error returns the cause's text.
func (v *RetryVerdict) Error() string {
	if v.Cause == nil {
		return "swarmiji: retry"
	}
	return "swarmiji: retry: " + v.Cause.Error()
}

// Unwrap returns the cause.
func (v *RetryVerdict) Unwrap() error { return v.Cause }

// FailVerdict is the error made by [Fail].
type FailVerdict struct{ Cause error }

// Fail ends the task for good: no middleware retries it. A nil cause fails it with an empty reason.
func Fail(cause error) error {
	if cause == nil {
		cause = errors.New("swarmiji: failed without a reason")
	}
	return &FailVerdict{cause}
}

// Error returns the cause's text.
func (v *FailVerdict) Error() string { return v.Cause.Error() }

// Unwrap returns the cause.
func (v *FailVerdict) Unwrap() error { return v.Cause }

// SnoozeVerdict is the error made by [Snooze].
type SnoozeVerdict struct{ Delay time.Duration }

// Snooze ends the run with "not now": the task is seen again after d, and neither an attempt nor a failure is counted.
// d below 0 counts as 0.
func Snooze(d time.Duration) error { return &SnoozeVerdict{max(d, 0)} }

// Error says how long the task sleeps.
func (v *SnoozeVerdict) Error() string { return "swarmiji: snooze for " + v.Delay.String() }

// VerdictOf returns the outermost verdict in err's chain, a [*RetryVerdict], [*FailVerdict], [*SnoozeVerdict] or [*DeferVerdict], or
// nil if there is none. So Fail(Retry(err)) fails and Retry(Fail(err)) retries: what was said last counts.
func VerdictOf(err error) error {
	for err != nil {
		switch err.(type) { //nolint:errorlint // the chain is walked here, to find the outermost
		case *RetryVerdict, *FailVerdict, *SnoozeVerdict, *DeferVerdict:
			return err
		}
		switch u := err.(type) { //nolint:errorlint // likewise
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if v := VerdictOf(e); v != nil {
					return v
				}
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}
