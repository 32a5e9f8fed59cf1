package httpinspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/swarmiji/swarmiji/inspect"
)

// method is one method of the interface.
type method struct {
	do inspect.Do // the change; "": it only reads
	// call decodes the argument, asks allow, and calls the method.
	call func(ctx context.Context, api inspect.API, body []byte, allow allowFunc) (any, error)
}

// allowFunc returns an error if the caller may not change the target. It is not called for methods
// that only read.
type allowFunc func(target string) error

// reads returns a method that changes nothing.
func reads[A, R any](fn func(inspect.API, context.Context, A) (R, error)) method {
	return method{call: func(ctx context.Context, api inspect.API, body []byte, _ allowFunc) (any, error) {
		var arg A
		if err := decode(body, &arg); err != nil {
			return nil, err
		}
		return fn(api, ctx, arg)
	}}
}

// changes returns a method that needs a permission for its target.
func changes[A, R any](do inspect.Do, fn func(inspect.API, context.Context, A) (R, error), target func(A) string) method {
	return method{do: do, call: func(ctx context.Context, api inspect.API, body []byte, allow allowFunc) (any, error) {
		var arg A
		if err := decode(body, &arg); err != nil {
			return nil, err
		}
		if err := allow(target(arg)); err != nil {
			return nil, err
		}
		return fn(api, ctx, arg)
	}}
}

// decode reads one JSON value. No body is the zero value.
func decode(body []byte, to any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return &inspect.Error{Code: inspect.CodeInvalid, Text: "the argument is not what the method takes: " + err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &inspect.Error{Code: inspect.CodeInvalid, Text: "the argument is followed by more"}
	}
	return nil
}

// methods returns the methods by name.
func methods() map[string]method {
	text := func(s string) string { return s }
	filter := func(c inspect.DeadChange) string { return c.Queue }
	ids := func(c inspect.JobChange) string {
		if len(c.IDs) == 1 {
			return strconv.FormatInt(c.IDs[0], 10)
		}
		return ""
	}
	nodes := func(t inspect.Target) string {
		if len(t.Nodes) == 1 {
			return t.Nodes[0]
		}
		return ""
	}
	return map[string]method{
		"ListQueues":   reads(inspect.API.ListQueues),
		"GetQueue":     reads(inspect.API.GetQueue),
		"ListMessages": reads(inspect.API.ListMessages),
		"ListKeys":     reads(inspect.API.ListKeys),
		"PurgeQueue":   changes(inspect.DoPurgeQueue, inspect.API.PurgeQueue, func(p inspect.Purge) string { return p.Queue }),
		"PauseQueue":   changes(inspect.DoPauseQueue, inspect.API.PauseQueue, func(p inspect.Pause) string { return p.Queue }),
		"ResumeQueue":  changes(inspect.DoResumeQueue, inspect.API.ResumeQueue, text),

		"ListTasks":   reads(inspect.API.ListTasks),
		"CountTasks":  reads(inspect.API.CountTasks),
		"ListRates":   reads(inspect.API.ListRates),
		"GetTask":     reads(inspect.API.GetTask),
		"Why":         reads(inspect.API.Why),
		"ListRunning": reads(inspect.API.ListRunning),
		"CancelTask":  changes(inspect.DoCancelTask, inspect.API.CancelTask, func(c inspect.Cancel) string { return string(c.ID) }),
		"RunTask":     changes(inspect.DoRunTask, inspect.API.RunTask, func(r inspect.TaskRun) string { return string(r.ID) }),

		"ListDead":      reads(inspect.API.ListDead),
		"SummarizeDead": reads(inspect.API.SummarizeDead),
		"GetDead":       reads(inspect.API.GetDead),
		"RequeueDead":   changes(inspect.DoRequeueDead, inspect.API.RequeueDead, filter),
		"DropDead":      changes(inspect.DoDropDead, inspect.API.DropDead, filter),
		"ExportDead":    changes(inspect.DoExportDead, inspect.API.ExportDead, func(q inspect.DeadQuery) string { return q.Queue }),

		"ListWorkflows":  reads(inspect.API.ListWorkflows),
		"GetWorkflow":    reads(inspect.API.GetWorkflow),
		"CancelWorkflow": changes(inspect.DoCancelWorkflow, inspect.API.CancelWorkflow, func(c inspect.WorkflowCancel) string { return string(c.Root) }),
		"RetryWorkflow":  changes(inspect.DoRetryWorkflow, inspect.API.RetryWorkflow, func(r inspect.WorkflowRetry) string { return string(r.Root) }),

		"ListSchedules":  reads(inspect.API.ListSchedules),
		"GetSchedule":    reads(inspect.API.GetSchedule),
		"RunSchedule":    changes(inspect.DoRunSchedule, inspect.API.RunSchedule, func(r inspect.EntryRun) string { return r.ID }),
		"PauseSchedule":  changes(inspect.DoPauseSchedule, inspect.API.PauseSchedule, text),
		"ResumeSchedule": changes(inspect.DoResumeSchedule, inspect.API.ResumeSchedule, text),
		"RemoveSchedule": changes(inspect.DoRemoveSchedule, inspect.API.RemoveSchedule, text),

		"ListJobs":   reads(inspect.API.ListJobs),
		"GetJob":     reads(inspect.API.GetJob),
		"WhyJob":     reads(inspect.API.WhyJob),
		"RetryJobs":  changes(inspect.DoRetryJobs, inspect.API.RetryJobs, ids),
		"CancelJobs": changes(inspect.DoCancelJobs, inspect.API.CancelJobs, ids),
		"RemoveJobs": changes(inspect.DoRemoveJobs, inspect.API.RemoveJobs, ids),

		"ListWorkers":   reads(inspect.API.ListWorkers),
		"GetWorker":     reads(inspect.API.GetWorker),
		"PauseWorkers":  changes(inspect.DoPauseWorkers, inspect.API.PauseWorkers, nodes),
		"ResumeWorkers": changes(inspect.DoResumeWorkers, inspect.API.ResumeWorkers, nodes),
		"ScaleWorkers":  changes(inspect.DoScaleWorkers, inspect.API.ScaleWorkers, func(s inspect.Scale) string { return s.Queue }),
		"LimitWorkers":  changes(inspect.DoLimitWorkers, inspect.API.LimitWorkers, func(l inspect.RateLimit) string { return l.Name }),
		"StopWorkers":   changes(inspect.DoStopWorkers, inspect.API.StopWorkers, func(s inspect.Stop) string { return nodes(s.Target) }),

		"ListEvents": reads(inspect.API.ListEvents),

		"ListSettings": reads(inspect.API.ListSettings),
		"PauseTasks":   changes(inspect.DoPauseTasks, inspect.API.PauseTasks, func(p inspect.TaskPause) string { return p.Name }),
		"ResumeTasks":  changes(inspect.DoResumeTasks, inspect.API.ResumeTasks, text),
		"SetLimit":     changes(inspect.DoSetLimit, inspect.API.SetLimit, func(l inspect.Limit) string { return l.Queue + l.Name }),
		"ServeQueue":   changes(inspect.DoServeQueue, inspect.API.ServeQueue, func(s inspect.Serve) string { return s.Queue }),

		"ListAudit": reads(inspect.API.ListAudit),
		"Check":     reads(inspect.API.Check),
	}
}
