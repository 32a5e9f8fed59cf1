package jobstore

import "time"

// Handout is a claimed job, as its worker sees it.
type Handout struct {
	// Row is the job after the claim. Its Token ends the attempt.
	Row
	// ParentData is the data of its parent. nil: it has no parent.
	ParentData []byte
	// FinishedChildren and CancelledChildren are the ended children of a parent that goes on, in
	// the order of their ids. The next Finish of the parent deletes them.
	FinishedChildren, CancelledChildren []Child
	// GivenUp: a job with RetryAfter has used its ten claims. It is FAILED, and was not claimed
	// again.
	GivenUp bool
	// Refused is why the attempt of a queue's job failed before it began: its type refused the
	// data, or another job has its key. A runner treats it as a failed attempt.
	Refused error
	// Before is the state that GiveBack restores.
	Before Before
	// Asked is this process's time just before the store's time was read. The lease begins no
	// earlier.
	Asked time.Time
}

// Before is a part of a job before its claim.
type Before struct {
	State   State
	NextRun time.Time
}

// Child is a child that is over.
type Child struct {
	ID   ID
	Data []byte
}
