package task

// State is where a task stands, as far as a result store knows it. The zero value "" is not a state.
type State string

// The states of a task. A terminal state is recorded once and never replaced, except that [StateRequeued] of a newer
// generation replaces a failure: then the task has a new life.
const (
	StatePending   State = "pending"   // submitted; nothing is recorded yet
	StateStarted   State = "started"   // a worker runs it; recorded only where asked for
	StateRetrying  State = "retrying"  // an attempt ended, the next one is queued
	StateAwaiting  State = "awaiting"  // a run ended, and the answer is to come from outside, see [Defer]
	StateRequeued  State = "requeued"  // it had failed, and was put back from the dead letters, or a step before it was
	StateSucceeded State = "succeeded" // terminal
	StateFailed    State = "failed"    // terminal
	StateRevoked   State = "revoked"   // terminal: skipped because it was revoked
	StateExpired   State = "expired"   // terminal: its time to start had passed
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

// Recorded reports whether result stores keep records of s, which is so of all states but [StatePending].
func (s State) Recorded() bool { return s.Valid() && s != StatePending }
