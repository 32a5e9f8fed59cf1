package jobs

import "errors"

// The classes of errors, beside which a store's own error stands. They never hold a secret.
var (
	// ErrNotFound: there is no job of this id.
	ErrNotFound = errors.New("jobs: no such job")
	// ErrNoJob: no job that was asked for is due.
	ErrNoJob = errors.New("jobs: no job is due")
	// ErrBadJob: a job, or what was asked of one, is malformed.
	ErrBadJob = errors.New("jobs: bad job")
	// ErrState: the job's state, or that of its parent or children, forbids it. The errors below wrap it.
	ErrState = errors.New("jobs: not in this state")
	// ErrStale: the job was handed out to somebody else since, or its run is over.
	ErrStale = errors.New("jobs: another run has it")
	// ErrClosed: the store or the service was closed.
	ErrClosed = errors.New("jobs: closed")
	// ErrUnavailable: the store gave no answer. What was asked for may have been done.
	ErrUnavailable = errors.New("jobs: store unavailable")
	// ErrUnsupported: this store cannot do that; the text says what can.
	ErrUnsupported = errors.New("jobs: unsupported")
)
