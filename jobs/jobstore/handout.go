package jobstore

import "time"

// Handout is a claimed job, with the data that its worker needs.
type Handout struct {
	// Row is the job after the claim. Its Token ends the attempt.
	Row
	// ParentData is the data of the parent. nil: the job has no parent.
	ParentData []byte
	// FinishedChildren and CancelledChildren are the ended children of a parent that continues, in the
	// order of their ids. The next Finish of the parent deletes them. Their Data have at most
	// jobs.MaxChildrenData bytes in total; later children have nil Data. Service.Query reads these.
	FinishedChildren, CancelledChildren []Child
	// GivenUp reports that a job with RetryAfter has used its ten claims. It is FAILED and was not
	// claimed again.
	GivenUp bool
	// Refused is the error for which the attempt of a queue's job failed before it began. The job's
	// type refused the data, or another job has its key. A runner treats it as a failed attempt.
	Refused error
	// Before is the part of the job that GiveBack restores.
	Before Before
	// Asked is the time of this process just before the store's time was read. The lease begins at
	// Asked or later.
	Asked time.Time
}

// Before contains the state and NextRun that a job had before its claim.
type Before struct {
	State   State
	NextRun time.Time
}

// Child is a child that is FINISHED or CANCELLED.
type Child struct {
	ID   ID
	Data []byte
}
