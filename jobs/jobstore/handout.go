package jobstore

import "time"

// Handout is a job that was handed out, as it is shown to the worker that got it.
type Handout struct {
	// Row is the job as it is now. Its Token is what ends the run.
	Row
	// ParentData are the data of its parent. nil: it has none.
	ParentData []byte
	// FinishedChildren and CancelledChildren are those of a parent that goes on, in the order of
	// their ids. Its next Finish deletes them.
	FinishedChildren, CancelledChildren []Child
	// GivenUp: the ten repetitions of a job with RetryAfter are used up. It is FAILED, and was not
	// handed out.
	GivenUp bool
	// Refused is why the attempt of a queue's job has failed before it has begun: its type refused
	// the data, or another job has its key. A runner treats it as a failed attempt.
	Refused error
	// Before is what GiveBack restores.
	Before Before
	// Asked is a time of this process's clock, just before the store's time was read. The lease
	// begins no earlier.
	Asked time.Time
}

// Before is what a job was before it was handed out.
type Before struct {
	State   State
	NextRun time.Time
}

// Child is a child that is over.
type Child struct {
	ID   ID
	Data []byte
}
