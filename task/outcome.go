package task

import (
	"fmt"
	"time"
)

// MaxRetriesError reports that the retries of a task are used up. It matches [ErrMaxRetries] and
// wraps the cause of the last attempt's failure, if there is one.
type MaxRetriesError struct {
	Limit int   // limit of retries
	Cause error // of the last attempt; nil: [Retry] got none
}

// Error returns the limit and the text of the cause.
func (e *MaxRetriesError) Error() string {
	text := fmt.Sprintf("%v: %d", ErrMaxRetries, e.Limit)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *MaxRetriesError) Unwrap() error { return e.Cause }

// Is reports whether target is [ErrMaxRetries].
func (e *MaxRetriesError) Is(target error) bool { return target == ErrMaxRetries }

// Outcome is the outcome of an attempt by the error of its handler. A consumer may settle the
// attempt differently: when it stops, when the broker has taken the task back, or when the result
// cannot be stored.
type Outcome struct {
	// State is [StateSucceeded], [StateRetrying], [StateFailed], [StatePending] after a snooze, or
	// [StateAwaiting] after a [Defer].
	State State
	// Err is the reason. nil: a success, a snooze or a Defer. If the retries are used up, it is a
	// [*MaxRetriesError].
	Err error
	// Delay is the time until the next attempt.
	Delay time.Duration
	// Exhausted reports that the attempt would have been retried, but the retries are used up.
	Exhausted bool
	// Retries is the number of retries before this outcome. Limit is the limit of retries, negative
	// for no limit: that of the error if it sets one, else that of the metadata.
	Retries, Limit int
	// Await describes the expected answer if State is [StateAwaiting].
	Await *DeferVerdict
}

// Outcome returns the outcome of an attempt that ended with err. An error of [Retry], [Snooze],
// [Fail] or [Defer] decides; for any other error the task's [RetryPolicy] decides. The consumer
// uses it, and hooks and middleware may call it earlier. It calls methods of err, which may panic.
func (r *Request) Outcome(err error) Outcome {
	o := Outcome{State: StateSucceeded, Err: err, Retries: r.Retries, Limit: r.Effective.MaxRetries.Or(DefaultMaxRetries)}
	if err == nil {
		return o
	}
	switch v := VerdictOf(err).(type) { //nolint:errorlint // VerdictOf has walked the chain
	case *RetryVerdict:
		return r.retried(o, v)
	case *SnoozeVerdict:
		o.State, o.Err, o.Delay = StatePending, nil, v.Delay
		return o
	case *DeferVerdict:
		o.State, o.Err, o.Await = StateAwaiting, nil, v
		return o
	case *FailVerdict:
		o.State, o.Err = StateFailed, v.Cause
		return o
	}
	if text := r.Effective.Retry.Or(""); text != "" {
		// a malformed policy comes from a foreign writer and is ignored
		if p, perr := ParseRetryPolicy(text); perr == nil && p.Matches(err) {
			v := &RetryVerdict{Cause: err}
			if d, ok := p.Backoff.Delay(r.ID, r.Retries); ok {
				v.Delay = Set(d)
			}
			return r.retried(o, v)
		}
	}
	o.State = StateFailed
	return o
}

// retried returns o as a retry by v, or as a failure if the limit of retries is reached.
func (r *Request) retried(o Outcome, v *RetryVerdict) Outcome {
	o.Limit = v.Limit.Or(o.Limit)
	if o.Limit >= 0 && r.Retries >= o.Limit {
		o.State, o.Err, o.Exhausted = StateFailed, &MaxRetriesError{Limit: o.Limit, Cause: v.Cause}, true
		return o
	}
	o.State, o.Err = StateRetrying, v.Cause
	if o.Err == nil {
		o.Err = v
	}
	o.Delay = v.Delay.Or(r.Effective.RetryDelay.Or(DefaultRetryDelay))
	return o
}

// Recorded returns the error for the task's record and events: Err or, if the retries are used up,
// their cause if there is one.
func (o Outcome) Recorded() error {
	spent, ok := o.Err.(*MaxRetriesError) //nolint:errorlint // retried made it
	if ok && o.Exhausted && spent.Cause != nil {
		return spent.Cause
	}
	return o.Err
}
