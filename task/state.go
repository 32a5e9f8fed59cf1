package task

// State is the state of a task as a result store knows it. The zero value "" is not a state.
type State string

// The states of a task. A terminal state is recorded once and never replaced, with one exception:
// [StateRequeued] of a newer generation replaces a failure when the dead letter is requeued.
const (
	StatePending  State = "pending"  // submitted, without a record
	StateStarted  State = "started"  // a worker runs it; recorded only if configured
	StateRetrying State = "retrying" // an attempt has ended, and the next one is queued
	// an attempt has ended and waits for its answer from outside, see [Defer]
	StateAwaiting State = "awaiting"
	// it had failed, and its dead letter or that of a step before it was requeued
	StateRequeued  State = "requeued"
	StateSucceeded State = "succeeded" // terminal
	StateFailed    State = "failed"    // terminal
	StateRevoked   State = "revoked"   // terminal: skipped because it was revoked
	StateExpired   State = "expired"   // terminal: it expired before its start
)

// Terminal reports whether s is final.
func (s State) Terminal() bool {
	switch s {
	case StateSucceeded, StateFailed, StateRevoked, StateExpired:
		return true
	}
	return false
}

// Valid reports whether s is one of the states above.
func (s State) Valid() bool {
	switch s {
	case StatePending, StateStarted, StateRetrying, StateAwaiting, StateRequeued:
		return true
	}
	return s.Terminal()
}

// Recorded reports whether result stores keep records of s: all states except [StatePending].
func (s State) Recorded() bool { return s.Valid() && s != StatePending }
