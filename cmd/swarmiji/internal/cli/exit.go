package cli

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// The exit statuses. They never change, because scripts use them.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitUnreachable = 4
	ExitTaskFailed  = 5
	ExitLate        = 6
	ExitDuplicate   = 7
)

// Errors of this program with a status of their own.
var (
	ErrUsage     = errors.New("usage")
	ErrNotFound  = errors.New("not found")
	ErrLate      = errors.New("the answer is late")
	ErrDuplicate = errors.New("the answer is not the first")
	ErrNobody    = errors.New("no consumer answered; a consumer answers only if its program sets open.Options.Control and consumer.Config.Control, with the same keys, if any")
)

// TaskFailedError reports that the task ran, or was refused, and did not succeed.
type TaskFailedError struct{ Cause error }

// Error implements error.
func (e *TaskFailedError) Error() string { return "the task failed: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *TaskFailedError) Unwrap() error { return e.Cause }

// Status returns the exit status for err.
func Status(err error) int {
	var failed *TaskFailedError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrUsage):
		return ExitUsage
	case errors.As(err, &failed):
		return ExitTaskFailed
	}
	for _, class := range []struct {
		status int
		errs   []error
	}{
		{ExitUsage, []error{
			task.ErrBadName, task.ErrBadID, task.ErrBadMetadata, task.ErrBadArgs, when.ErrBadSpec, schedule.ErrBadEntry, schedule.ErrUnsupported,
			jobs.ErrBadJob, jobs.ErrUnsupported, inspect.ErrInvalid, deadletter.ErrFilter, deadletter.ErrMalformed, history.ErrQuery,
		}},
		{ExitError, []error{control.ErrMissing}},
		{ExitLate, []error{ErrLate}},
		{ExitDuplicate, []error{ErrDuplicate}},
		{ExitNotFound, []error{ErrNotFound, inspect.ErrNotFound, broker.ErrNoQueue, broker.ErrNotFound, resultstore.ErrNotFound, schedule.ErrNotFound, jobs.ErrNotFound, task.ErrNotFound, history.ErrNotFound}},
		{ExitUnreachable, []error{ErrNobody, ErrUnreachable, inspect.ErrNoConsumer, inspect.ErrUnavailable, inspect.ErrDenied, revoke.ErrUnheard, broker.ErrUnavailable, broker.ErrAccess, events.ErrUnavailable, resultstore.ErrUnavailable, schedule.ErrUnavailable, jobs.ErrUnavailable, history.ErrUnavailable}},
	} {
		for _, one := range class.errs {
			if errors.Is(err, one) {
				return class.status
			}
		}
	}
	return ExitError
}

// ErrFindings reports failed checks. Their details are already printed.
var ErrFindings = errors.New("there are failures")

// ErrUnreachable is ErrFindings if a server cannot be reached.
var ErrUnreachable = fmt.Errorf("%w: a server cannot be reached or refuses access", ErrFindings)
