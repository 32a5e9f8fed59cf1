package task

import (
	"errors"
	"time"
)

// Handlers return verdicts as errors. The consumer's settlement applies them. Making one has no
// effect, so nothing is sent outside of a handler.

// RetryVerdict is the error that [Retry] returns.
type RetryVerdict struct {
	Cause error              // the reason; may be nil
	Delay Opt[time.Duration] // default: the task's RetryDelay
	Limit Opt[int]           // default: the task's MaxRetries
}

// RetryOption sets something on a [RetryVerdict].
type RetryOption func(*RetryVerdict)

// After sets the delay before the next attempt. 0 or less: at once.
func After(d time.Duration) RetryOption { return func(v *RetryVerdict) { v.Delay = Set(max(d, 0)) } }

// AtMost sets the limit of retries for this decision. Negative: no limit.
func AtMost(n int) RetryOption { return func(v *RetryVerdict) { v.Limit = Set(n) } }

// Retry returns an error that ends the attempt and runs the task again later, with one more retry
// counted. The task keeps its id and its queue. The submitter's future waits for the final outcome.
// After the last retry the task fails with cause, or with [ErrMaxRetries] if cause is nil.
func Retry(cause error, opts ...RetryOption) error {
	v := &RetryVerdict{Cause: cause}
	for _, o := range opts {
		o(v)
	}
	return v
}

// Error returns the text of the cause.
func (v *RetryVerdict) Error() string {
	if v.Cause == nil {
		return "swarmiji: retry"
	}
	return "swarmiji: retry: " + v.Cause.Error()
}

// Unwrap returns the cause.
func (v *RetryVerdict) Unwrap() error { return v.Cause }

// FailVerdict is the error that [Fail] returns.
type FailVerdict struct{ Cause error }

// Fail returns an error that fails the task for good: no middleware and no policy retries it. If
// cause is nil, the task fails without a reason.
func Fail(cause error) error {
	if cause == nil {
		cause = errors.New("swarmiji: failed without a reason")
	}
	return &FailVerdict{cause}
}

// Error returns the text of the cause.
func (v *FailVerdict) Error() string { return v.Cause.Error() }

// Unwrap returns the cause.
func (v *FailVerdict) Unwrap() error { return v.Cause }

// SnoozeVerdict is the error that [Snooze] returns.
type SnoozeVerdict struct{ Delay time.Duration }

// Snooze returns an error that ends the attempt and runs the task again after d, without counting
// an attempt or a failure. d below 0 counts as 0.
func Snooze(d time.Duration) error { return &SnoozeVerdict{max(d, 0)} }

// Error returns a text with the delay.
func (v *SnoozeVerdict) Error() string { return "swarmiji: snooze for " + v.Delay.String() }

// VerdictOf returns the outermost verdict in err's chain: a [*RetryVerdict], [*FailVerdict],
// [*SnoozeVerdict] or [*DeferVerdict]. It returns nil if err wraps none. For example,
// Fail(Retry(err)) fails and Retry(Fail(err)) retries.
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
