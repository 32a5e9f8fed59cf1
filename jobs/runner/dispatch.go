package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// definition converts jobs of a name to tasks, and results of the tasks to data of the jobs.
type definition struct {
	// call returns the call that submits the task. An error: the data do not fit the task.
	call func(data []byte) (task.Call, error)
	// result reads the result of the ended task p as data; nil: not a JSON object.
	result func(ctx context.Context, p task.Pending) ([]byte, error)
}

// Dispatch makes a runner with Config.Submit dispatch the jobs with these names as tasks. Without
// names it uses the name of t. So a job with a foreign name, such as www-prod/SendEmail, gets a
// task name that brokers accept. The data of a job are the arguments; if they do not fit, the job
// fails. Call it before Run. It takes r.mu.
//
// Each run is one task ([jobs.TaskID]). The task keeps its id if it is submitted again because a
// confirmation was lost or a runner died. The job ends when the end of its task is recorded:
//
//   - a result that is a JSON object becomes its data;
//   - a task that failed after its retries, expired or was revoked makes the job FAILED.
//
// The record in Config.Results decides. It is retained for at least one day longer than Timeout,
// so runners may be down for that long.
//
// Returns [jobs.ErrUnsupported] without Config.Submit, and for a task that ignores its result or
// runs at most once. Returns [task.ErrDuplicateTask] for a name that is dispatched already, and an
// error for an invalid name or metadata. After an error no name is dispatched.
//
// Consumers should use [Current] as a middleware. The priority of a job orders its dispatch; the
// priority of its task is that of the definition.
func Dispatch[A, R any](r *Runner, t task.Task[A, R], names ...string) error {
	meta := t.Metadata()
	if r.c.Submit == nil {
		return fmt.Errorf("%w: Dispatch requires a runner with Config.Submit", jobs.ErrUnsupported)
	}
	if !meta.Idempotent.Or(true) {
		return fmt.Errorf("%w: the task %q runs at most once, but a job's task may be submitted again", jobs.ErrUnsupported, t.Name())
	}
	if meta.IgnoreResult.Or(false) {
		return fmt.Errorf("%w: the task %q ignores its result, so its job would never end", jobs.ErrUnsupported, t.Name())
	}
	if len(names) == 0 {
		names = []string{t.Name()}
	}
	errs := []error{task.CheckName(t.Name()), meta.Check()}
	for _, name := range names {
		errs = append(errs, jobstore.CheckName(name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	d := &definition{
		call: func(data []byte) (task.Call, error) {
			var args A
			err := decode(data, &args)
			return t.Call(args), err
		},
		result: func(ctx context.Context, p task.Pending) ([]byte, error) {
			var result R
			if err := p.Result(ctx, &result); err != nil {
				return nil, err
			}
			return object(result)
		},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if r.definitions[name] != nil {
			return fmt.Errorf("%w: %q", task.ErrDuplicateTask, name)
		}
	}
	for _, name := range names {
		r.definitions[name] = d
	}
	return nil
}

// dispatched returns the job names for which Dispatch was called, sorted. It takes r.mu.
func (r *Runner) dispatched() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.definitions))
}

// definition returns the definition for a job name, or nil if the name is not dispatched here. It
// takes r.mu.
func (r *Runner) definition(name string) *definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.definitions[name]
}

// call returns the call that submits the task of a job's current run. Its id and the header
// HeaderRun identify the run, so a repeated call has the same id. Its result is stored for at least
// Config.Timeout and a day. Returns an error if the data of the job do not fit the task. The name
// of h must be dispatched.
func (r *Runner) call(h *heldJob) (task.Call, error) {
	c, err := r.definition(h.Name).call(h.args)
	if err != nil {
		return c, err
	}
	what := jobs.RunOf(&h.Row)
	c.ID = what.TaskID()
	task.WithHeader(jobs.HeaderRun, what.String())(&c)
	var own task.Metadata
	if c.Definition != nil {
		own = *c.Definition
	}
	c.Meta.IgnoreResult = task.Set(false)
	c.Meta.ResultTTL = task.Set(max(own.ResultTTL.Or(0), r.c.Timeout+task.DefaultResultTTL))
	return c, nil
}

// observer is a Submitter that can read results of tasks that another process submitted.
type observer interface {
	Pending(id task.ID) task.Pending
}

// pendingOf returns a handle with which the result of a recorded task can be read. If Config.Submit
// has no method Pending, the handle reads only JSON from the record, and only its Result may be
// called.
func (r *Runner) pendingOf(rec *resultstore.Record) task.Pending {
	if o, ok := r.c.Submit.(observer); ok {
		return o.Pending(rec.ID)
	}
	return plain{record: rec}
}

// plain is a task.Pending that reads a result in JSON from the record of its task. Only Result
// works.
type plain struct {
	task.Pending
	record *resultstore.Record
}

// Result decodes the recorded result of the task into v, and does nothing if v is nil. It does not
// block. Returns an error that wraps [task.ErrBadResult] if the result has another content type,
// or does not fit v. It implements task.Pending.
func (p plain) Result(_ context.Context, v any) error {
	if v == nil {
		return nil
	}
	if p.record.ContentType != contentType {
		return fmt.Errorf("%w: the result is %q, which only a Config.Submit with a method Pending can read", task.ErrBadResult, p.record.ContentType)
	}
	if err := taskio.Unmarshal(p.record.Result, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadResult, err)
	}
	return nil
}
