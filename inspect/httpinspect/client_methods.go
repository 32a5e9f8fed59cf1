package httpinspect

import (
	"context"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// ListQueues implements [inspect.API].
func (c *Client) ListQueues(ctx context.Context, q inspect.QueueQuery) (inspect.QueuePage, error) {
	return call[inspect.QueuePage](ctx, c, "ListQueues", q)
}

// GetQueue implements [inspect.API].
func (c *Client) GetQueue(ctx context.Context, name string) (inspect.Queue, error) {
	return call[inspect.Queue](ctx, c, "GetQueue", name)
}

// ListMessages implements [inspect.API].
func (c *Client) ListMessages(ctx context.Context, q inspect.MessageQuery) (inspect.MessagePage, error) {
	return call[inspect.MessagePage](ctx, c, "ListMessages", q)
}

// ListKeys implements [inspect.API].
func (c *Client) ListKeys(ctx context.Context, q inspect.KeyQuery) (inspect.KeyPage, error) {
	return call[inspect.KeyPage](ctx, c, "ListKeys", q)
}

// PurgeQueue implements [inspect.API].
func (c *Client) PurgeQueue(ctx context.Context, p inspect.Purge) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "PurgeQueue", p)
}

// PauseQueue implements [inspect.API].
func (c *Client) PauseQueue(ctx context.Context, p inspect.Pause) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "PauseQueue", p)
}

// ResumeQueue implements [inspect.API].
func (c *Client) ResumeQueue(ctx context.Context, queue string) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "ResumeQueue", queue)
}

// ListTasks implements [inspect.API].
func (c *Client) ListTasks(ctx context.Context, q inspect.TaskQuery) (inspect.TaskPage, error) {
	return call[inspect.TaskPage](ctx, c, "ListTasks", q)
}

// CountTasks implements [inspect.API].
func (c *Client) CountTasks(ctx context.Context, query string) (inspect.Count, error) {
	return call[inspect.Count](ctx, c, "CountTasks", query)
}

// ListRates implements [inspect.API].
func (c *Client) ListRates(ctx context.Context, q inspect.RateQuery) (inspect.RatePage, error) {
	return call[inspect.RatePage](ctx, c, "ListRates", q)
}

// GetTask implements [inspect.API].
func (c *Client) GetTask(ctx context.Context, k inspect.TaskKey) (inspect.TaskDetail, error) {
	return call[inspect.TaskDetail](ctx, c, "GetTask", k)
}

// Why implements [inspect.API].
func (c *Client) Why(ctx context.Context, k inspect.TaskKey) (inspect.Explanation, error) {
	return call[inspect.Explanation](ctx, c, "Why", k)
}

// ListRunning implements [inspect.API].
func (c *Client) ListRunning(ctx context.Context, q inspect.RunningQuery) (inspect.RunningPage, error) {
	return call[inspect.RunningPage](ctx, c, "ListRunning", q)
}

// CancelTask implements [inspect.API].
func (c *Client) CancelTask(ctx context.Context, arg inspect.Cancel) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "CancelTask", arg)
}

// RunTask implements [inspect.API].
func (c *Client) RunTask(ctx context.Context, arg inspect.TaskRun) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RunTask", arg)
}

// ListDead implements [inspect.API].
func (c *Client) ListDead(ctx context.Context, q inspect.DeadQuery) (inspect.DeadPage, error) {
	return call[inspect.DeadPage](ctx, c, "ListDead", q)
}

// SummarizeDead implements [inspect.API].
func (c *Client) SummarizeDead(ctx context.Context, arg inspect.DeadCount) (inspect.DeadSummary, error) {
	return call[inspect.DeadSummary](ctx, c, "SummarizeDead", arg)
}

// GetDead implements [inspect.API].
func (c *Client) GetDead(ctx context.Context, k inspect.DeadKey) (inspect.DeadLetter, error) {
	return call[inspect.DeadLetter](ctx, c, "GetDead", k)
}

// RequeueDead implements [inspect.API].
func (c *Client) RequeueDead(ctx context.Context, arg inspect.DeadChange) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RequeueDead", arg)
}

// DropDead implements [inspect.API].
func (c *Client) DropDead(ctx context.Context, arg inspect.DeadChange) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "DropDead", arg)
}

// ExportDead implements [inspect.API].
func (c *Client) ExportDead(ctx context.Context, q inspect.DeadQuery) (inspect.DeadExport, error) {
	return call[inspect.DeadExport](ctx, c, "ExportDead", q)
}

// ListWorkflows implements [inspect.API].
func (c *Client) ListWorkflows(ctx context.Context, q inspect.WorkflowQuery) (inspect.WorkflowPage, error) {
	return call[inspect.WorkflowPage](ctx, c, "ListWorkflows", q)
}

// GetWorkflow implements [inspect.API].
func (c *Client) GetWorkflow(ctx context.Context, root task.ID) (inspect.Workflow, error) {
	return call[inspect.Workflow](ctx, c, "GetWorkflow", root)
}

// CancelWorkflow implements [inspect.API].
func (c *Client) CancelWorkflow(ctx context.Context, w inspect.WorkflowCancel) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "CancelWorkflow", w)
}

// RetryWorkflow implements [inspect.API].
func (c *Client) RetryWorkflow(ctx context.Context, r inspect.WorkflowRetry) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RetryWorkflow", r)
}

// ListSchedules implements [inspect.API].
func (c *Client) ListSchedules(ctx context.Context, q inspect.ScheduleQuery) (inspect.SchedulePage, error) {
	return call[inspect.SchedulePage](ctx, c, "ListSchedules", q)
}

// GetSchedule implements [inspect.API].
func (c *Client) GetSchedule(ctx context.Context, k inspect.ScheduleKey) (inspect.Schedule, error) {
	return call[inspect.Schedule](ctx, c, "GetSchedule", k)
}

// RunSchedule implements [inspect.API].
func (c *Client) RunSchedule(ctx context.Context, arg inspect.EntryRun) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RunSchedule", arg)
}

// PauseSchedule implements [inspect.API].
func (c *Client) PauseSchedule(ctx context.Context, id string) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "PauseSchedule", id)
}

// ResumeSchedule implements [inspect.API].
func (c *Client) ResumeSchedule(ctx context.Context, id string) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "ResumeSchedule", id)
}

// RemoveSchedule implements [inspect.API].
func (c *Client) RemoveSchedule(ctx context.Context, id string) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RemoveSchedule", id)
}

// ListJobs implements [inspect.API].
func (c *Client) ListJobs(ctx context.Context, q inspect.JobQuery) (inspect.JobPage, error) {
	return call[inspect.JobPage](ctx, c, "ListJobs", q)
}

// GetJob implements [inspect.API].
func (c *Client) GetJob(ctx context.Context, id int64) (inspect.JobDetail, error) {
	return call[inspect.JobDetail](ctx, c, "GetJob", id)
}

// WhyJob implements [inspect.API].
func (c *Client) WhyJob(ctx context.Context, id int64) (inspect.Explanation, error) {
	return call[inspect.Explanation](ctx, c, "WhyJob", id)
}

// RetryJobs implements [inspect.API].
func (c *Client) RetryJobs(ctx context.Context, arg inspect.JobChange) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RetryJobs", arg)
}

// CancelJobs implements [inspect.API].
func (c *Client) CancelJobs(ctx context.Context, arg inspect.JobChange) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "CancelJobs", arg)
}

// RemoveJobs implements [inspect.API].
func (c *Client) RemoveJobs(ctx context.Context, arg inspect.JobChange) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "RemoveJobs", arg)
}

// ListWorkers implements [inspect.API].
func (c *Client) ListWorkers(ctx context.Context, q inspect.WorkerQuery) (inspect.WorkerPage, error) {
	return call[inspect.WorkerPage](ctx, c, "ListWorkers", q)
}

// GetWorker implements [inspect.API].
func (c *Client) GetWorker(ctx context.Context, node string) (inspect.Worker, error) {
	return call[inspect.Worker](ctx, c, "GetWorker", node)
}

// PauseWorkers implements [inspect.API].
func (c *Client) PauseWorkers(ctx context.Context, t inspect.Target) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "PauseWorkers", t)
}

// ResumeWorkers implements [inspect.API].
func (c *Client) ResumeWorkers(ctx context.Context, t inspect.Target) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "ResumeWorkers", t)
}

// ScaleWorkers implements [inspect.API].
func (c *Client) ScaleWorkers(ctx context.Context, s inspect.Scale) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "ScaleWorkers", s)
}

// LimitWorkers implements [inspect.API].
func (c *Client) LimitWorkers(ctx context.Context, l inspect.RateLimit) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "LimitWorkers", l)
}

// StopWorkers implements [inspect.API].
func (c *Client) StopWorkers(ctx context.Context, s inspect.Stop) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "StopWorkers", s)
}

// ListEvents implements [inspect.API].
func (c *Client) ListEvents(ctx context.Context, q inspect.EventQuery) (inspect.EventPage, error) {
	return call[inspect.EventPage](ctx, c, "ListEvents", q)
}

// ListSettings implements [inspect.API].
func (c *Client) ListSettings(ctx context.Context, q inspect.SettingsQuery) (inspect.SettingsPage, error) {
	return call[inspect.SettingsPage](ctx, c, "ListSettings", q)
}

// PauseTasks implements [inspect.API].
func (c *Client) PauseTasks(ctx context.Context, p inspect.TaskPause) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "PauseTasks", p)
}

// ResumeTasks implements [inspect.API].
func (c *Client) ResumeTasks(ctx context.Context, name string) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "ResumeTasks", name)
}

// SetLimit implements [inspect.API].
func (c *Client) SetLimit(ctx context.Context, l inspect.Limit) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "SetLimit", l)
}

// ServeQueue implements [inspect.API].
func (c *Client) ServeQueue(ctx context.Context, s inspect.Serve) (inspect.Change, error) {
	return call[inspect.Change](ctx, c, "ServeQueue", s)
}

// ListAudit implements [inspect.API].
func (c *Client) ListAudit(ctx context.Context, q inspect.AuditQuery) (inspect.AuditPage, error) {
	return call[inspect.AuditPage](ctx, c, "ListAudit", q)
}

// Check implements [inspect.API].
func (c *Client) Check(ctx context.Context, q inspect.CheckQuery) (inspect.Report, error) {
	return call[inspect.Report](ctx, c, "Check", q)
}
