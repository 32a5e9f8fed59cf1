package jobstore

import "time"

// EarlyAnswer is an answer that came before its request was stored. There is one for each name and
// key.
type EarlyAnswer struct {
	Name, Key string
	// Result is any JSON value. nil: the answer is a refusal.
	Result []byte
	// Refusal says why it is one.
	Refusal string
	// Expires is when it is deleted, unless its request is stored before.
	Expires time.Time
}
