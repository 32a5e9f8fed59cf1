package main

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
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
	exitTaskFailed  = 5
	exitLate        = 6
	exitDuplicate   = 7
)

// Errors of this program with a status of their own.
var (
	errUsage     = errors.New("usage")
	errNotFound  = errors.New("not found")
	errLate      = errors.New("the answer is late")
	errDuplicate = errors.New("the answer is not the first")
	errNobody    = errors.New("no consumer answered; a consumer answers only if its program sets open.Options.Control and consumer.Config.Control, with the same keys, if any")
)

// taskFailedError reports that the task ran, or was refused, and did not succeed.
type taskFailedError struct{ cause error }

func (e *taskFailedError) Error() string { return "the task failed: " + e.cause.Error() }

func (e *taskFailedError) Unwrap() error { return e.cause }

// status returns the exit status for err.
func status(err error) int {
	var failed *taskFailedError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.As(err, &failed):
		return exitTaskFailed
	}
	for _, class := range []struct {
		status int
		errs   []error
	}{
		{exitUsage, []error{
			task.ErrBadName, task.ErrBadID, task.ErrBadMetadata, task.ErrBadArgs, when.ErrBadSpec, schedule.ErrBadEntry, schedule.ErrUnsupported,
			jobs.ErrBadJob, jobs.ErrUnsupported, inspect.ErrInvalid, deadletter.ErrFilter, deadletter.ErrMalformed, history.ErrQuery,
		}},
		{exitError, []error{control.ErrMissing}},
		{exitLate, []error{errLate}},
		{exitDuplicate, []error{errDuplicate}},
		{exitNotFound, []error{errNotFound, inspect.ErrNotFound, broker.ErrNoQueue, broker.ErrNotFound, resultstore.ErrNotFound, schedule.ErrNotFound, jobs.ErrNotFound, task.ErrNotFound, history.ErrNotFound}},
		{exitUnreachable, []error{errNobody, errUnreachable, inspect.ErrNoConsumer, inspect.ErrUnavailable, inspect.ErrDenied, revoke.ErrUnheard, broker.ErrUnavailable, broker.ErrAccess, events.ErrUnavailable, resultstore.ErrUnavailable, schedule.ErrUnavailable, jobs.ErrUnavailable, history.ErrUnavailable}},
	} {
		for _, one := range class.errs {
			if errors.Is(err, one) {
				return class.status
			}
		}
	}
	return exitError
}

// errFindings reports failed checks. Their details are already printed.
var errFindings = errors.New("there are failures")

// errUnreachable is errFindings if a server cannot be reached.
var errUnreachable = fmt.Errorf("%w: a server cannot be reached or refuses access", errFindings)
