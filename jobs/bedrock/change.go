package bedrock

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// updateJob executes UpdateJob: it changes the data of the job jobID in any state. The header data
// is required; the fields of retryAfter that the server has added to it are removed. If given,
// jobPriority sets the priority, nextRun the next run and repeat the repeat; without repeat,
// shouldClearRepeat removes it. Returns a statusError for bad arguments, or the error of the
// service.
func updateJob(ctx context.Context, c *call) (err error) {
	f := fields{c.req}
	var u jobs.Update
	if u.ID, err = f.id(); err != nil {
		return err
	}
	if u.Data, err = f.data(); err != nil {
		return err
	}
	if u.Data == nil {
		return missing("data")
	}
	if u.Priority, err = f.priority("jobPriority"); err != nil {
		return err
	}
	if u.NextRun, err = f.time("nextRun"); err != nil {
		return err
	}
	if repeat := f.get("repeat"); repeat != nil {
		u.Repeat = task.Set(string(repeat))
	} else if f.flag("shouldClearRepeat") {
		u.Repeat = task.Set("")
	}
	if u.Data, err = c.dataFromClient(ctx, u.ID, u.Data); err != nil {
		return err
	}
	return c.s.Update(ctx, u)
}

// finishJob executes FinishJob: it ends the run of a job as a success, with its data replaced by
// the header data if that is given. It needs only the header jobID, so any client can end the run.
// Fields of retryAfter that the server has added to the data are removed. Returns a statusError
// for bad arguments, or the error of the service.
func finishJob(ctx context.Context, c *call) (err error) {
	f := fields{c.req}
	var end jobs.Finish
	if end.ID, err = f.id(); err != nil {
		return err
	}
	if end.Data, err = f.data(); err != nil {
		return err
	}
	if end.Data, err = c.dataFromClient(ctx, end.ID, end.Data); err != nil {
		return err
	}
	return c.s.Finish(ctx, end)
}

// retryJob executes RetryJob: it ends the run of a job and makes the job QUEUED again. The
// optional headers nextRun, delay, name, data and jobPriority change the job; ignoreRepeat ignores
// its repeat. Fields of retryAfter that the server has added to the data are removed. Returns a
// statusError for bad arguments, or the error of the service.
func retryJob(ctx context.Context, c *call) (err error) {
	f := fields{c.req}
	var again jobs.Retry
	if again.ID, err = f.id(); err != nil {
		return err
	}
	if again.NextRun, err = f.time("nextRun"); err != nil {
		return err
	}
	if again.Delay, err = f.delay(); err != nil {
		return err
	}
	if again.Name, err = f.text("name"); err != nil {
		return err
	}
	if again.Data, err = f.data(); err != nil {
		return err
	}
	if again.Priority, err = f.priority("jobPriority"); err != nil {
		return err
	}
	again.IgnoreRepeat = f.flag("ignoreRepeat")
	if again.Data, err = c.dataFromClient(ctx, again.ID, again.Data); err != nil {
		return err
	}
	return c.s.Retry(ctx, again)
}

// failJob executes FailJob: it makes a running job FAILED, with its data replaced by the header
// data if that is given. Its record stays. Fields of retryAfter that the server has added to the
// data are removed. Returns a statusError for bad arguments, or the error of the service.
func failJob(ctx context.Context, c *call) (err error) {
	f := fields{c.req}
	var end jobs.Fail
	if end.ID, err = f.id(); err != nil {
		return err
	}
	if end.Data, err = f.data(); err != nil {
		return err
	}
	if end.Data, err = c.dataFromClient(ctx, end.ID, end.Data); err != nil {
		return err
	}
	return c.s.Fail(ctx, end)
}

// deleteJob executes DeleteJob: it deletes a job that does not run and has no children. Returns a
// statusError without a valid id, or the error of the service.
func deleteJob(ctx context.Context, c *call) error {
	id, err := fields{c.req}.id()
	if err != nil {
		return err
	}
	return c.s.Delete(ctx, id)
}

// cancelJob executes CancelJob: it makes a job that has a parent CANCELLED, unless it is RUNNING,
// FINISHED or PAUSED, which changes nothing. Returns a statusError without a valid id, or the
// error of the service.
func cancelJob(ctx context.Context, c *call) error {
	id, err := fields{c.req}.id()
	if err != nil {
		return err
	}
	return c.s.Cancel(ctx, id)
}

// requeueJobs executes RequeueJobs: it makes the jobs of the header jobIDs QUEUED for the time of
// their creation, and renames them if a name is given. It waits for units of work for lists, as
// CreateJobs does. Returns a statusError for a missing or malformed list, for more than maxJobs
// ids, and for an invalid name. Returns the error of ctx if it ends during the wait, or the error
// of the service.
func requeueJobs(ctx context.Context, c *call) error {
	text := c.req.get("jobIDs")
	if text == nil {
		return missing("jobIDs")
	}
	items := list(text, maxJobs)
	if len(items) == 0 {
		return malformed("jobIDs")
	}
	if len(items) > maxJobs {
		return statusError("402 Too many jobs")
	}
	leave, err := c.memory.lists.enter(ctx, c.req.length+len(items)*listedJob)
	if err != nil {
		return err
	}
	defer leave()
	ids := make([]jobs.ID, len(items))
	for i, item := range items {
		n, ok := whole(trimRight([]byte(item)))
		if !ok || n == 0 {
			return malformed("jobIDs")
		}
		ids[i] = jobs.ID(n)
	}
	name, err := fields{c.req}.text("name")
	if err != nil {
		return err
	}
	return c.s.Requeue(ctx, ids, name)
}
