package jobstore

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

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

// FieldError says which part of what was asked for is bad. It wraps [ErrBadJob].
type FieldError struct {
	// Field is "name", "data", "repeat", "retryAfter", "sequenceKey", "jobPriority", "firstRun", "nextRun", "delay", "parentJobID", "lease",
	// "jobIDs", "numResults", "queue", "weight", "windows", "timeout", "uniqueKey", "key", "unique", "mock", "result" or "answers".
	Field string
	// Problem is "missing", "malformed" or "too long", or a sentence where none of these says it.
	Problem string
	// Detail, if not "", says more.
	Detail string
}

// Error returns the field and what is wrong with it.
func (e *FieldError) Error() string {
	text := ErrBadJob.Error() + ": " + e.Field + ": " + e.Problem
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns [ErrBadJob].
func (e *FieldError) Unwrap() error { return ErrBadJob }

// What the state of a job, or of those around it, forbids. Each wraps [ErrState].
var (
	// ErrNotRunning: to finish, retry or fail a job, it has to run.
	ErrNotRunning = fmt.Errorf("%w: the job does not run", ErrState)
	// ErrParentNotPaused: to finish or retry a child, its parent has to wait for it.
	ErrParentNotPaused = fmt.Errorf("%w: the job's parent is not paused", ErrState)
	// ErrIsRunning: a job that runs cannot be deleted.
	ErrIsRunning = fmt.Errorf("%w: the job runs", ErrState)
	// ErrChildrenRunning: a job that is PAUSED cannot be deleted.
	ErrChildrenRunning = fmt.Errorf("%w: the job is paused, for its children or for its parent", ErrState)
	// ErrOutstanding: the job has children that are not over, or FAILED, and so cannot go.
	ErrOutstanding = fmt.Errorf("%w: the job has outstanding children", ErrState)
	// ErrParentState: to get a child, a job has to run or to be PAUSED.
	ErrParentState = fmt.Errorf("%w: the parent neither runs nor is paused", ErrState)
	// ErrGrandchild: a child cannot have children.
	ErrGrandchild = fmt.Errorf("%w: the parent is itself a child", ErrState)
	// ErrMockDiffers: a parent and its child have the same Mock.
	ErrMockDiffers = fmt.Errorf("%w: parent and child differ in Mock", ErrState)
	// ErrParentNotFound: there is no job of the parent's id.
	ErrParentNotFound = fmt.Errorf("%w: there is no such parent", ErrState)
	// ErrOtherParent: the unique job that is there has another parent, or has none, or has one while none was named.
	ErrOtherParent = fmt.Errorf("%w: the job that is there has another parent", ErrState)
	// ErrHasChildren: a job that has children cannot be cancelled.
	ErrHasChildren = fmt.Errorf("%w: the job has children", ErrState)
	// ErrKeyTaken: a job that is not over has this key already. [KeyTakenError] says which one.
	ErrKeyTaken = fmt.Errorf("%w: another job has this key", ErrState)
	// ErrOver: a job that is over cannot be withdrawn.
	ErrOver = fmt.Errorf("%w: the job is over", ErrState)
	// ErrAnswerThere: the run has its answer, and cannot expect another.
	ErrAnswerThere = fmt.Errorf("%w: the answer has come", ErrState)
	// ErrNoParent: only children can be cancelled.
	ErrNoParent = fmt.Errorf("%w: the job has no parent", ErrState)
)

// KeyTakenError says which job has a key. It wraps [ErrKeyTaken].
type KeyTakenError struct {
	// Key is the Key or the UniqueKey that was asked for.
	Key string
	// Job has it, and is not over. 0: Task, or another job of the same CreateAll.
	Job ID
	// Task has it, and waits for its answer. "": Job.
	Task task.ID
}

// Error says which job has which key.
func (e *KeyTakenError) Error() string {
	switch {
	case e.Task != "":
		return fmt.Sprintf("%v: %q, task %s, which waits for its answer", ErrKeyTaken, e.Key, e.Task)
	case e.Job == 0:
		return fmt.Sprintf("%v: %q, a job that is made together with it", ErrKeyTaken, e.Key)
	}
	return fmt.Sprintf("%v: %q, job %d", ErrKeyTaken, e.Key, e.Job)
}

// Unwrap returns [ErrKeyTaken].
func (e *KeyTakenError) Unwrap() error { return ErrKeyTaken }

// RunOver reports whether err says that a run is over or another's, or that its job is gone.
func RunOver(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotRunning)
}
