package jobstore

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

// The classes of errors. A store adds its own error to the chain. None holds a secret.
var (
	// ErrNotFound: no job has this id.
	ErrNotFound = errors.New("jobs: no such job")
	// ErrNoJob: no requested job is due.
	ErrNoJob = errors.New("jobs: no job is due")
	// ErrBadJob: a job or a request is malformed.
	ErrBadJob = errors.New("jobs: bad job")
	// ErrState: the state of the job, its parent or its children forbids the call. The errors below
	// wrap it.
	ErrState = errors.New("jobs: not in this state")
	// ErrStale: the job was claimed by another worker since, or its attempt is over.
	ErrStale = errors.New("jobs: another run has it")
	// ErrClosed: the store or the service was closed.
	ErrClosed = errors.New("jobs: closed")
	// ErrUnavailable: the store gave no answer. The call may have had its effect.
	ErrUnavailable = errors.New("jobs: store unavailable")
	// ErrUnsupported: this store cannot do it. The text names the stores or options that can.
	ErrUnsupported = errors.New("jobs: unsupported")
)

// FieldError names the bad field of a request. It wraps [ErrBadJob].
type FieldError struct {
	// Field is one of these:
	//   - "name", "data", "queue", "key", "unique", "uniqueKey", "sequenceKey", "parentJobID";
	//   - "repeat", "retryAfter", "firstRun", "nextRun", "delay", "lease", "windows", "timeout";
	//   - "jobPriority", "weight", "mock", "jobIDs", "numResults", "result", "answers".
	Field string
	// Problem is "missing", "malformed", "too long", or a sentence.
	Problem string
	// Detail explains the problem. "": no detail.
	Detail string
}

// Error returns the field, the problem and the detail.
func (e *FieldError) Error() string {
	text := ErrBadJob.Error() + ": " + e.Field + ": " + e.Problem
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns [ErrBadJob].
func (e *FieldError) Unwrap() error { return ErrBadJob }

// The errors of calls that a state forbids. Each wraps [ErrState].
var (
	// ErrNotRunning: only a running job can be finished, retried or failed.
	ErrNotRunning = fmt.Errorf("%w: the job does not run", ErrState)
	// ErrParentNotPaused: a child can be finished or retried only while its parent is PAUSED.
	ErrParentNotPaused = fmt.Errorf("%w: the job's parent is not paused", ErrState)
	// ErrIsRunning: a running job cannot be deleted.
	ErrIsRunning = fmt.Errorf("%w: the job runs", ErrState)
	// ErrChildrenRunning: a job that is PAUSED cannot be deleted.
	ErrChildrenRunning = fmt.Errorf("%w: the job is paused, for its children or for its parent", ErrState)
	// ErrOutstanding: the job cannot be deleted, since it has children that are not over, or
	// FAILED.
	ErrOutstanding = fmt.Errorf("%w: the job has outstanding children", ErrState)
	// ErrParentState: only a job that runs or is PAUSED can get a child.
	ErrParentState = fmt.Errorf("%w: the parent neither runs nor is paused", ErrState)
	// ErrGrandchild: a child cannot have children.
	ErrGrandchild = fmt.Errorf("%w: the parent is itself a child", ErrState)
	// ErrMockDiffers: a parent and its child must have the same Mock.
	ErrMockDiffers = fmt.Errorf("%w: parent and child differ in Mock", ErrState)
	// ErrParentNotFound: no job has the parent's id.
	ErrParentNotFound = fmt.Errorf("%w: there is no such parent", ErrState)
	// ErrOtherParent: the existing unique job has another parent, or only one of the two has a
	// parent.
	ErrOtherParent = fmt.Errorf("%w: the job that is there has another parent", ErrState)
	// ErrHasChildren: a job with children cannot be cancelled.
	ErrHasChildren = fmt.Errorf("%w: the job has children", ErrState)
	// ErrKeyTaken: a job or a task that is not over has this key. [KeyTakenError] says which one.
	ErrKeyTaken = fmt.Errorf("%w: another job has this key", ErrState)
	// ErrOver: a job that is over cannot be withdrawn.
	ErrOver = fmt.Errorf("%w: the job is over", ErrState)
	// ErrAnswerThere: the attempt has its answer, and cannot expect another.
	ErrAnswerThere = fmt.Errorf("%w: the answer has come", ErrState)
	// ErrNoParent: only children can be cancelled.
	ErrNoParent = fmt.Errorf("%w: the job has no parent", ErrState)
)

// KeyTakenError names the job or the task that has a key. It wraps [ErrKeyTaken].
type KeyTakenError struct {
	// Key is the requested Key or UniqueKey.
	Key string
	// Job has the key, and is not over. 0: Task has it, or another job of the same CreateAll.
	Job ID
	// Task has the key, and waits for its answer. "": Job has it.
	Task task.ID
}

// Error names the key, and the job or the task.
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

// RunOver reports whether err says that an attempt is over, that another worker has it, or that its
// job is deleted.
func RunOver(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotRunning)
}
