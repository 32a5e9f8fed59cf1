package bedrock

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/jobs"
)

// statusError is the status line for a refused request.
type statusError string

// Error returns the status with the name of the package.
func (e statusError) Error() string { return "bedrock: " + string(e) }

// missing returns the error of a required field that is missing.
func missing(name string) error { return statusError("402 Missing " + name) }

// malformed returns the error of a field that is malformed.
func malformed(name string) error { return statusError("402 Malformed " + name) }

// unknownJob is the status if no job has the id.
const unknownJob = "404 No job with this jobID"

// named is the status for an error of a Service.
type named struct {
	err    error
	status string
}

// statuses returns the statuses of the protocol for the errors of a Service. The first match with
// errors.Is counts.
func statuses() []named {
	return []named{
		{jobs.ErrNoJob, statusNoJob},
		{jobs.ErrNotFound, unknownJob},
		{jobs.ErrParentNotFound, "404 parentJobID does not exist"},
		{jobs.ErrOtherParent, "404 Trying to create a child that already exists, but it is tied to a different parent"},
		{jobs.ErrHasChildren, "404 Invalid jobID - Cannot cancel a job with children"},
		{jobs.ErrNoParent, "404 Invalid jobID - Cannot cancel a job without a parent"},
		{jobs.ErrParentNotPaused, "405 Can only retry/finish child job when parent is PAUSED"},
		{jobs.ErrIsRunning, "405 Can't delete a RUNNING job"},
		{jobs.ErrChildrenRunning, "405 Can't delete a parent jobs with children running"},
		{jobs.ErrOutstanding, "405 Failed to delete a job with outstanding children"},
		{jobs.ErrParentState, "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED"},
		{jobs.ErrGrandchild, "405 Cannot create grandchildren"},
		{jobs.ErrMockDiffers, "405 Parent and child jobs must have matching mockRequest setting"},
		{jobs.ErrKeyTaken, "405 Another job has the key of this one"},
		{jobs.ErrState, "405 Not in this state"},
		{jobs.ErrStale, "405 Another run has this job"},
		{jobs.ErrClosed, "500 Server is stopping"},
		{jobs.ErrUnavailable, "502 Storage unavailable"},
	}
}

// fieldName returns the name of a field in the protocol for its name in package jobs. Only
// sequenceKey differs: there it is sequentialKey.
func fieldName(name string) string {
	if name == "sequenceKey" {
		return "sequentialKey"
	}
	return name
}

// status returns the status line for err, the error of a command. The first case that applies
// decides:
//
//   - A statusError: its own text.
//   - ErrNotRunning: 405, with a text for FailJob or for the other commands.
//   - A FieldError: fieldStatus.
//   - An error of the table statuses: its status. ErrUnavailable is logged.
//   - Another ErrBadJob: 402.
//   - ctx has ended: 555 after the time limit, else 500.
//   - Any other error: 500, and it is logged.
func (c *call) status(ctx context.Context, err error) string {
	var own statusError
	var field *jobs.FieldError
	switch {
	case errors.As(err, &own):
		return string(own)
	case errors.Is(err, jobs.ErrNotRunning):
		if same(c.req.verb(), "FailJob") {
			return "405 Can only fail RUNNING or RUNQUEUED jobs"
		}
		return "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
	case errors.As(err, &field):
		return fieldStatus(field)
	}
	for _, s := range c.c.s.statuses {
		if errors.Is(err, s.err) {
			if errors.Is(err, jobs.ErrUnavailable) {
				c.logError(err)
			}
			return s.status
		}
	}
	switch {
	case errors.Is(err, jobs.ErrBadJob):
		return "402 Malformed job"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return statusLate
	case ctx.Err() != nil:
		return "500 Server is stopping"
	}
	c.logError(err)
	return "500 Internal error"
}

// logError logs an error that the client does not see in full.
func (c *call) logError(err error) {
	c.c.s.c.Logger.Error("bedrock: a command failed", "command", string(c.req.verb()), "error", err)
}

// fieldStatus returns the status line, a 402, for a field that the service has refused. The text
// names the field and says that it is missing or malformed. Priorities and data have texts of their
// own; the text for data that are too long contains the limit.
func fieldStatus(f *jobs.FieldError) string {
	switch {
	case f.Field == "jobPriority" || f.Field == "priority":
		return "402 Invalid priority value"
	case f.Problem == "missing":
		return "402 Missing " + fieldName(f.Field)
	case f.Field == "data" && f.Problem == "too long":
		return "402 Data is too long: " + f.Detail
	case f.Field == "data":
		return "402 Data is not a valid JSON Object"
	}
	return "402 Malformed " + fieldName(f.Field)
}
