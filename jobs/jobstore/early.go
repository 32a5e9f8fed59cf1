package jobstore

import "time"

// EarlyAnswer is an answer that came before its request was stored. Each name and key has at most
// one.
type EarlyAnswer struct {
	Name, Key string
	// Result is any JSON value. nil: the answer is a refusal.
	Result []byte
	// Refusal is the reason of a refusal.
	Refusal string
	// Expires is when it is deleted, if its request has not come.
	Expires time.Time
}
