package task

import (
	"fmt"
	"time"
)

// MaxRetriesError says that a task's retries are used up. It is [ErrMaxRetries], and what it wraps is the cause of the last
// attempt's failure, if one was given.
type MaxRetriesError struct {
	Limit int   // how many retries the task had
	Cause error // of the last attempt; nil: [Retry] was given none
}

// Error returns the limit and the cause's text.
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

// Outcome is what an attempt comes to by what its handler returned. A consumer may yet come to something else: when it stops,
// when the broker took the task back, or when the result cannot be stored.
type Outcome struct {
	// State is [StateSucceeded], [StateRetrying], [StateFailed], [StatePending] for a snooze, or [StateAwaiting] for a [Defer].
	State State
	// Err is why; nil for a success, a snooze and a Defer. When the retries are used up it is a [*MaxRetriesError].
	Err error
	// Delay is how long the task waits for its next attempt.
	Delay time.Duration
	// Exhausted says that the attempt would have been retried and that the retries are used up.
	Exhausted bool
	// Retries and Limit are the task's budget: how many retries it has used before this outcome, and how many it has in all,
	// negative for no limit. Limit counts what the verdict or else the metadata said.
	Retries, Limit int
	// Await is what the task waits for, where State is [StateAwaiting].
	Await *DeferVerdict
}

// Outcome tells what becomes of an attempt that ended with err: by its verdict, and where it has none by the task's
// [RetryPolicy]. The consumer goes by it; hooks and middleware may ask beforehand. It calls the methods of err, which may
// be anybody's code, and depends on nothing but r and err.
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
		if p, perr := ParseRetryPolicy(text); perr == nil && p.Matches(err) { // one that cannot be read is a foreign writer's
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

// retried applies the limit of retries.
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

// Recorded returns the error that the task's record and events have: Err, or, when the retries are used up, the cause that
// was given.
func (o Outcome) Recorded() error {
	if spent, ok := o.Err.(*MaxRetriesError); ok && o.Exhausted && spent.Cause != nil { //nolint:errorlint // retried made it
		return spent.Cause
	}
	return o.Err
}
