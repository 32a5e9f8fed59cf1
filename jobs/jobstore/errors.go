package jobstore

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

// The classes of errors. A store adds its own error to the chain. No error contains a secret.
var (
	// ErrNotFound reports that no job has the id.
	ErrNotFound = errors.New("jobs: no such job")
	// ErrNoJob reports that no requested job is due.
	ErrNoJob = errors.New("jobs: no job is due")
	// ErrBadJob reports that a job or a request is malformed.
	ErrBadJob = errors.New("jobs: bad job")
	// ErrState reports that the state of the job, its parent or its children does not allow the call.
	// The errors below wrap it.
	ErrState = errors.New("jobs: not in this state")
	// ErrStale reports that another worker has claimed the job since, or that the attempt is over.
	ErrStale = errors.New("jobs: the attempt is over or another worker has the job")
	// ErrClosed reports that the store or the service was closed.
	ErrClosed = errors.New("jobs: closed")
	// ErrUnavailable reports that the store did not reply. The call may have taken effect.
	ErrUnavailable = errors.New("jobs: store unavailable")
	// ErrHeld reports that another transaction, perhaps one of a caller, held a lock that the call
	// needs. Nothing was changed. It wraps ErrUnavailable.
	ErrHeld = fmt.Errorf("%w: another transaction holds a lock of the key or the job", ErrUnavailable)
	// ErrUnsupported reports that this store cannot perform the call. The text names the stores or
	// options that can.
	ErrUnsupported = errors.New("jobs: unsupported")
)

// FieldError names the invalid field of a request. It wraps [ErrBadJob].
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

// Error returns the text of [ErrBadJob], the field, the problem, and the detail if there is one,
// separated by ": ".
func (e *FieldError) Error() string {
	text := ErrBadJob.Error() + ": " + e.Field + ": " + e.Problem
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns [ErrBadJob].
func (e *FieldError) Unwrap() error { return ErrBadJob }

// The errors of calls that a state does not allow. Each wraps [ErrState].
var (
	// ErrNotRunning reports a call that only a running job allows, such as Finish, Retry or Fail.
	ErrNotRunning = fmt.Errorf("%w: the job does not run", ErrState)
	// ErrParentNotPaused reports a Finish or Retry of a child whose parent is not PAUSED.
	ErrParentNotPaused = fmt.Errorf("%w: the job's parent is not paused", ErrState)
	// ErrIsRunning reports a Delete of a running job.
	ErrIsRunning = fmt.Errorf("%w: the job runs", ErrState)
	// ErrChildrenRunning reports a Delete of a PAUSED job.
	ErrChildrenRunning = fmt.Errorf("%w: the job is paused, for its children or for its parent", ErrState)
	// ErrOutstanding reports that a job cannot be deleted because it has children that are not over,
	// or FAILED.
	ErrOutstanding = fmt.Errorf("%w: the job has outstanding children", ErrState)
	// ErrParentState reports a new child for a parent that neither runs nor is PAUSED.
	ErrParentState = fmt.Errorf("%w: the parent neither runs nor is paused", ErrState)
	// ErrGrandchild reports a new child for a parent that is a child itself.
	ErrGrandchild = fmt.Errorf("%w: the parent is itself a child", ErrState)
	// ErrMockDiffers reports that a parent and its new child differ in Mock.
	ErrMockDiffers = fmt.Errorf("%w: parent and child differ in Mock", ErrState)
	// ErrParentNotFound reports that no job has the id of the parent.
	ErrParentNotFound = fmt.Errorf("%w: no job has the id of the parent", ErrState)
	// ErrOtherParent reports that the existing unique job has another parent, or that only one of the
	// two has a parent.
	ErrOtherParent = fmt.Errorf("%w: the existing job has another parent", ErrState)
	// ErrHasChildren reports a Cancel or Withdraw of a job that has children.
	ErrHasChildren = fmt.Errorf("%w: the job has children", ErrState)
	// ErrKeyTaken reports that an open job or a waiting task already has the key. [KeyTakenError]
	// names the job or the task.
	ErrKeyTaken = fmt.Errorf("%w: another job or task has this key", ErrState)
	// ErrOver reports a Withdraw of a job that is FINISHED or FAILED.
	ErrOver = fmt.Errorf("%w: the job is over", ErrState)
	// ErrAnswerThere reports that the attempt already has its answer and cannot expect another one.
	ErrAnswerThere = fmt.Errorf("%w: the attempt already has its answer", ErrState)
	// ErrNoParent reports a Cancel of a job without a parent.
	ErrNoParent = fmt.Errorf("%w: the job has no parent", ErrState)
)

// KeyTakenError names the job or the task that already has a key. It wraps [ErrKeyTaken].
type KeyTakenError struct {
	// Key is the requested Key or UniqueKey.
	Key string
	// Job is the open job that has the key. 0: Task has it, or another job of the same CreateAll.
	Job ID
	// Task is the waiting task that has the key. "": Job has it.
	Task task.ID
}

// Error names the key, and the task or the job that has it. If both Task and Job are unset, it
// names another job of the same call.
func (e *KeyTakenError) Error() string {
	switch {
	case e.Task != "":
		return fmt.Sprintf("%v: %q, task %s, which waits for its answer", ErrKeyTaken, e.Key, e.Task)
	case e.Job == 0:
		return fmt.Sprintf("%v: %q, another job of the same call", ErrKeyTaken, e.Key)
	}
	return fmt.Sprintf("%v: %q, job %d", ErrKeyTaken, e.Key, e.Job)
}

// Unwrap returns [ErrKeyTaken].
func (e *KeyTakenError) Unwrap() error { return ErrKeyTaken }

// RunOver reports whether err means that the attempt is over: it wraps ErrStale, ErrNotFound or
// ErrNotRunning.
func RunOver(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotRunning)
}
