package jobstore

import "time"

// EarlyAnswer is an answer that came before its request was stored. There is at most one for each
// name and key.
type EarlyAnswer struct {
	Name, Key string
	// Result is any JSON value. nil: the answer is a refusal.
	Result []byte
	// Refusal is the reason of a refusal.
	Refusal string
	// Expires is the time at which the answer is deleted if no job has claimed it.
	Expires time.Time
}
