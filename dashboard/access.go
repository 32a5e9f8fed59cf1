package dashboard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/swarmiji/swarmiji/inspect"
)

// least returns the least role that may make a change. A change that is not listed is for admins.
func least(do inspect.Do) Role {
	switch do {
	case inspect.DoPauseQueue, inspect.DoResumeQueue, inspect.DoPauseTasks, inspect.DoResumeTasks, inspect.DoSetLimit, inspect.DoServeQueue,
		inspect.DoCancelTask, inspect.DoRunTask, inspect.DoCancelWorkflow, inspect.DoRetryWorkflow, inspect.DoRequeueDead,
		inspect.DoRunSchedule, inspect.DoPauseSchedule, inspect.DoResumeSchedule,
		inspect.DoRetryJobs, inspect.DoCancelJobs,
		inspect.DoPauseWorkers, inspect.DoResumeWorkers, inspect.DoScaleWorkers, inspect.DoLimitWorkers:
		return Operator
	}
	return Admin
}

// may returns nil if the caller of r may make a change, and otherwise the reason.
func (c *Config) may(r *http.Request, do inspect.Do, target string) error {
	who := callerOf(r.Context())
	switch {
	case do == inspect.DoExportDead && c.HideArguments:
		return errors.New("arguments are hidden here, so dead letters are not exported")
	case c.ReadOnly && do != inspect.DoExportDead:
		return errors.New("this dashboard is read-only")
	case who.role < least(do):
		return fmt.Errorf("this needs the role %v; you have %v", least(do), who.role)
	case c.Authorize != nil:
		return c.Authorize(r, do, target)
	}
	return nil
}

// denied returns the error of may as one of the API.
func denied(err error) error {
	if err == nil {
		return nil
	}
	return &inspect.Error{Code: inspect.CodeDenied, Text: "not allowed: " + err.Error()}
}
