package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrNoRun is the error of Progress outside of a run.
var ErrNoRun = errors.New("jobs: not in the run of a job")

// active is the run of a handler.
type active struct {
	s   *jobs.Service
	run jobs.Run

	mu      sync.Mutex
	handout jobs.Handout
	over    bool // it has ended: later calls of the handler have no effect
	lose    func()
}

type activeKey struct{}

// FromContext returns the job of the calling handler, as it was claimed, with the data of its last
// [Progress]. ok is false outside of a run. In a consumer it needs [Current].
func FromContext(ctx context.Context) (jobs.Handout, bool) {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return jobs.Handout{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handout, true
}

// Progress replaces the data of the job of the calling handler. v must be a JSON object as JSON.
// Queries show the data while the job runs. If the process dies, the next attempt begins with them.
//
//   - Returns [jobstore.ErrStale] if the run is over, or another worker has it.
//   - Returns [jobstore.ErrUnsupported] in a task with conditions, whose job keeps no progress.
//   - Returns [ErrNoRun] outside of a run. In a consumer it needs [Current].
func Progress(ctx context.Context, v any) error {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return ErrNoRun
	}
	data, err := errand.Marshal(v)
	if err != nil {
		return &jobs.FieldError{Field: "data", Problem: rules.Malformed, Detail: err.Error()}
	}
	if err := jobstore.CheckData(data); err != nil {
		return err
	}
	if _, prepared := jobs.TaskOf(&a.handout.Job); prepared {
		return fmt.Errorf("%w: job %d is a task with conditions, which keeps no progress", jobs.ErrUnsupported, a.run.ID)
	}
	return a.update(ctx, data)
}

// update writes data. One call runs at a time.
func (a *active) update(ctx context.Context, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return fmt.Errorf("%w: the handler of job %d has ended", jobs.ErrStale, a.run.ID)
	}
	u := jobs.Update{ID: a.run.ID, Token: a.handout.Token, Data: data}
	err := a.s.Update(ctx, u)
	if errors.Is(err, jobs.ErrStale) && a.lose == nil { // a dispatched run goes on
		var j jobs.Row
		if j, err = a.s.CurrentRun(ctx, a.run); err == nil {
			u.Token, a.handout.Token = j.Token, j.Token
			err = a.s.Update(ctx, u)
		}
	}
	if err == nil {
		a.handout.Data = data
	}
	return a.told(err)
}

// told notes what an error of the service says about the run, and returns the error for the
// handler.
func (a *active) told(err error) error {
	if errors.Is(err, jobs.ErrNotFound) {
		err = fmt.Errorf("%w: %w", jobs.ErrStale, err)
	}
	if errors.Is(err, jobs.ErrStale) && a.lose != nil {
		a.lose()
	}
	return err
}

// Expect implements [task.Expecter].
func (a *active) Expect(ctx context.Context, key string) error {
	return a.expect(ctx, key, task.Opt[bool]{})
}

func (a *active) expect(ctx context.Context, key string, respond task.Opt[bool]) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return fmt.Errorf("%w: the handler of job %d has ended", jobs.ErrStale, a.run.ID)
	}
	err := a.s.Expect(ctx, jobs.Expect{ID: a.run.ID, Token: a.handout.Token, Key: key, Respond: respond})
	if err == nil {
		a.handout.Key, a.handout.Respond = key, respond.Or(a.handout.Respond)
	}
	return a.told(err)
}

// again returns the state for the next function of the same attempt. It begins with the data that
// the one before has left.
func (a *active) again() *active {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &active{s: a.s, run: a.run, handout: a.handout, lose: a.lose}
}

// end makes later calls of the handler have no effect.
func (a *active) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// againSoon is the delay of a task whose job cannot be read.
const againSoon = 5 * time.Second

// Current returns a middleware for consumers that run tasks of dispatched jobs. Before a task
// starts it checks that the run is the present one of its job. Otherwise the task fails with
// [jobstore.ErrStale], and is not run. For a task with conditions (task.Conditions) it checks that
// its job runs.
//
// If the store does not answer, the task is delivered again after 5 s. All other tasks pass, and so
// do tasks that follow the task of a job.
//
// Without Current a task that is delivered again or submitted twice may run after its job has
// ended. With it [Progress] and [FromContext] work in the handlers.
func Current(s *jobs.Service) func(next task.Handler) task.Handler {
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, q *task.Request) (any, error) {
			var j jobs.Row
			var err error
			r, ok := jobs.ParseRun(q.Headers[jobs.HeaderRun])
			switch {
			case q.Headers[task.HeaderConditions] == string(q.ID):
				j, err = s.JobOfTask(ctx, q.Name, q.ID)
				r = jobs.RunOf(&j)
			case ok && r.TaskID() == q.ID:
				j, err = s.CurrentRun(ctx, r)
			default:
				return next.Handle(ctx, q)
			}
			switch {
			case errors.Is(err, jobs.ErrStale):
				return nil, task.Fail(err)
			case err != nil:
				return nil, task.Snooze(againSoon)
			}
			a := &active{s: s, run: r, handout: jobs.Handout{Row: j}}
			defer a.end()
			return next.Handle(context.WithValue(ctx, activeKey{}, a), q)
		})
	}
}
