package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// definition is how jobs of a name are dispatched.
type definition struct {
	call   func(data []byte) (task.Call, error)
	result func(ctx context.Context, p task.Pending) ([]byte, error) // as data; nil: it is no object
}

// Dispatch has a runner with Config.Submit dispatch the jobs of these names, or of the task's own if none is given, as tasks: a name that
// belongs to others, as www-prod/SendEmail, becomes that of a task which brokers take. The job's data are the arguments, and have to fit them; else the job fails.
//
// One run is one task for ever ([jobs.TaskID]): submitted again, because an answer was lost or a runner died, it has the same id. The job ends when the
// task's end is recorded: a result that is a JSON object becomes its data, and a task that has failed, retries and all, expired or was revoked makes the job FAILED.
// The record is the truth: it is in Config.Results, a task that ignores its result is refused, as is one that runs at most once, and the record is kept for
// a day longer than Timeout at least: for so long runners may be away. Consumers should have [Current] among their middleware. A job's priority says when it is dispatched; that of its task is the definition's.
func Dispatch[A, R any](r *Runner, t task.Task[A, R], names ...string) error {
	meta := t.Metadata()
	if r.c.Submit == nil {
		return fmt.Errorf("%w: this runner runs handlers in place; Dispatch is for one with Submit", jobs.ErrUnsupported)
	}
	if !meta.Idempotent.Or(true) {
		return fmt.Errorf("%w: the task %q runs at most once, and a job's task is submitted again when an answer is lost", jobs.ErrUnsupported, t.Name())
	}
	if meta.IgnoreResult.Or(false) {
		return fmt.Errorf("%w: the task %q ignores its result, so that nobody would learn of its end", jobs.ErrUnsupported, t.Name())
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

// dispatched returns the names of the jobs that are dispatched, sorted.
func (r *Runner) dispatched() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.definitions))
}

func (r *Runner) definition(name string) *definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.definitions[name]
}

// call makes the task of a job's run.
func (r *Runner) call(j *jobs.Row) (task.Call, error) {
	c, err := r.definition(j.Name).call(j.Data)
	if err != nil {
		return c, err
	}
	what := jobs.RunOf(j)
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

// observer is a submitter that can read what became of a task which another process has submitted.
type observer interface {
	Pending(id task.ID) task.Pending
}

// pendingOf returns what reads the result of a record.
func (r *Runner) pendingOf(rec *resultstore.Record) task.Pending {
	if o, ok := r.c.Submit.(observer); ok {
		return o.Pending(rec.ID)
	}
	return plain{record: rec}
}

// plain reads the result of a record that is JSON.
type plain struct {
	task.Pending
	record *resultstore.Record
}

// Result implements task.Pending.
func (p plain) Result(_ context.Context, v any) error {
	if v == nil {
		return nil
	}
	if p.record.ContentType != contentType {
		return fmt.Errorf("%w: it is %q, which only a Submit with a method Pending can read", task.ErrBadResult, p.record.ContentType)
	}
	if err := errand.Unmarshal(p.record.Result, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadResult, err)
	}
	return nil
}
