package bedrock

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// updateJob changes a job, whatever its state.
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
	if u.Data, err = c.given(ctx, u.ID, u.Data); err != nil {
		return err
	}
	return c.s.Update(ctx, u)
}

// finishJob ends a run well.
func finishJob(ctx context.Context, c *call) (err error) {
	f := fields{c.req}
	var end jobs.Finish
	if end.ID, err = f.id(); err != nil {
		return err
	}
	if end.Data, err = f.data(); err != nil {
		return err
	}
	if end.Data, err = c.given(ctx, end.ID, end.Data); err != nil {
		return err
	}
	return c.s.Finish(ctx, end)
}

// retryJob ends a run, and has the job run again.
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
	if again.Data, err = c.given(ctx, again.ID, again.Data); err != nil {
		return err
	}
	return c.s.Retry(ctx, again)
}

// failJob ends a run badly. The job is kept.
func failJob(ctx context.Context, c *call) (err error) {
	f := fields{c.req}
	var end jobs.Fail
	if end.ID, err = f.id(); err != nil {
		return err
	}
	if end.Data, err = f.data(); err != nil {
		return err
	}
	if end.Data, err = c.given(ctx, end.ID, end.Data); err != nil {
		return err
	}
	return c.s.Fail(ctx, end)
}

// deleteJob removes a job that does not run.
func deleteJob(ctx context.Context, c *call) error {
	id, err := fields{c.req}.id()
	if err != nil {
		return err
	}
	return c.s.Delete(ctx, id)
}

// cancelJob has a child not run.
func cancelJob(ctx context.Context, c *call) error {
	id, err := fields{c.req}.id()
	if err != nil {
		return err
	}
	return c.s.Cancel(ctx, id)
}

// requeueJobs has jobs run again as when they were made.
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
