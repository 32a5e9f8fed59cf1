package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/progress"
	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrNoRun is the error of Progress in a context that is not a job's.
var ErrNoRun = errors.New("jobs: the context is not that of a running job")

// active is the state of a job while its handler runs. The context of the handler contains it.
type active struct {
	s   *jobs.Service
	run jobs.Run

	mu      sync.Mutex
	handout jobs.Handout
	over    bool // the handler has returned: its later calls have no effect
	// sends the values of task.Progress; nil: no value was reported
	reporter atomic.Pointer[progress.Reporter]
	// lose marks the job as lost to another worker. nil: a consumer runs the task of a dispatched job.
	lose func()
}

// activeKey is the key under which the context of a handler contains its *active.
type activeKey struct{}

// FromContext returns the job of the calling handler as it was claimed. Its data are those of the
// last [Progress], its key that of the last Expect. The second result is false if ctx is not the
// context of a job. In a consumer it requires [Current]. It reads nothing from the store. It waits
// for a call of Progress or Expect that is in progress, since it takes a.mu.
func FromContext(ctx context.Context) (jobs.Handout, bool) {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return jobs.Handout{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handout, true
}

// Progress replaces the data of the job of the calling handler by v, which must encode to a JSON
// object. It blocks until the data are stored. Concurrent calls run one after the other. Queries
// show the data while the job runs. If the process dies, the next attempt begins with them.
//
//   - Returns [jobstore.ErrStale] if the run is over, the handler has returned, or another worker
//     has the job. In the last case the context of the handler ends.
//   - Returns [jobstore.ErrBadJob] if v cannot be encoded, is not an object, or is too long.
//   - Returns [jobstore.ErrUnsupported] in a task with conditions, whose job stores no progress.
//   - Returns [ErrNoRun] if ctx is not the context of a job. In a consumer it requires [Current].
//   - Returns other errors of the store, such as [jobstore.ErrUnavailable]; the data may then be
//     stored.
func Progress(ctx context.Context, v any) error {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return ErrNoRun
	}
	data, err := taskio.Marshal(v)
	if err != nil {
		return &jobs.FieldError{Field: "data", Problem: rules.Malformed, Detail: err.Error()}
	}
	if err := jobstore.CheckData(data); err != nil {
		return err
	}
	if _, prepared := jobs.TaskOf(&a.handout.Job); prepared {
		return fmt.Errorf("%w: job %d belongs to a task with conditions, which stores no progress", jobs.ErrUnsupported, a.run.ID)
	}
	return a.update(ctx, func([]byte) ([]byte, error) { return data, nil })
}

// ProgressKey is the key in the data of a job under which [task.Progress] stores its last value: an
// object with done, total, note and at (a time as in RFC 3339). It replaces the value of this key
// only; [Progress] replaces all data. Tasks with conditions store no progress.
const ProgressKey = "_progress"

// ReportProgress stores p in the data of the job soon, from another goroutine (storeProgress), and
// does not block. Of several values within a second only the last is stored. Its first call creates
// the reporter. It implements [task.Progressor].
func (a *active) ReportProgress(p task.ProgressValue) {
	if a.reporter.Load() == nil {
		a.reporter.CompareAndSwap(nil, progress.New(a.storeProgress))
	}
	a.reporter.Load().Report(p)
}

// storeProgress stores p in the data of the job under ProgressKey, and blocks until that is stored.
// It ignores errors, since another value may come. It does nothing for the job of a task with
// conditions.
func (a *active) storeProgress(ctx context.Context, p task.ProgressValue) {
	if _, prepared := jobs.TaskOf(&a.handout.Job); prepared {
		return
	}
	_ = a.update(ctx, func(old []byte) ([]byte, error) {
		data := make(map[string]json.RawMessage)
		if err := json.Unmarshal(old, &data); err != nil && len(old) > 0 {
			return nil, err
		}
		value, err := json.Marshal(map[string]any{"done": p.Done, "total": p.Total, "note": p.Note, "at": p.At.UTC()})
		if err != nil {
			return nil, err
		}
		data[ProgressKey] = value
		all, err := json.Marshal(data)
		if err == nil {
			err = jobstore.CheckData(all)
		}
		return all, err
	})
}

// update stores the changed data of the job, and then sets them in a.handout. For a task in a
// consumer it reads the current token if its own is stale, and tries once more. It takes a.mu
// during the call of the store, so one call runs at a time.
//
// Returns ErrStale after the end of the handler, and if the run is over or another worker has the
// job. In the last case a.lose, if set, marks the job as lost. Returns the error of change, and
// other errors of the store; the data may then be stored.
func (a *active) update(ctx context.Context, change func(old []byte) ([]byte, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return fmt.Errorf("%w: the handler of job %d has ended", jobs.ErrStale, a.run.ID)
	}
	data, err := change(a.handout.Data)
	if err != nil {
		return err
	}
	u := jobs.Update{ID: a.run.ID, Token: a.handout.Token, Data: data}
	err = a.s.Update(ctx, u)
	// a dispatched run continues under the next token
	if errors.Is(err, jobs.ErrStale) && a.lose == nil {
		var j jobs.Row
		if j, err = a.s.CurrentRun(ctx, a.run); err == nil {
			u.Token, a.handout.Token = j.Token, j.Token
			err = a.s.Update(ctx, u)
		}
	}
	if err == nil {
		a.handout.Data = data
	}
	return a.noteLost(err)
}

// noteLost converts the error of a call for the job to the error for the handler. It adds ErrStale
// to an error that wraps ErrNotFound. It returns any other error, and nil, unchanged. If the
// result wraps ErrStale, it calls a.lose, if set, which marks the job as lost. Call it with a.mu
// held.
func (a *active) noteLost(err error) error {
	if errors.Is(err, jobs.ErrNotFound) {
		err = fmt.Errorf("%w: %w", jobs.ErrStale, err)
	}
	if errors.Is(err, jobs.ErrStale) && a.lose != nil {
		a.lose()
	}
	return err
}

// Expect reserves key for the answer of the attempt. It blocks until the key is stored. Returns
// jobs.ErrStale if the handler has returned or another worker has the job, and the other errors of
// Service.Expect. It takes a.mu. It implements [task.Expecter].
func (a *active) Expect(ctx context.Context, key string) error {
	return a.expect(ctx, key, task.Opt[bool]{})
}

// expect reserves key for the answer of the attempt (Service.Expect), and sets Respond of the job
// if respond is set. On success it updates a.handout. Returns ErrStale after the end of the
// handler. It also returns ErrStale if the attempt is over; a.lose, if set, then marks the job as
// lost. Returns the other errors of Service.Expect; the key may then be reserved. It takes a.mu.
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
	return a.noteLost(err)
}

// next returns a new state for the next function of the same attempt. It contains the data that the
// previous function has stored. Its calls have an effect even if the previous function has ended.
// It takes a.mu.
func (a *active) next() *active {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &active{s: a.s, run: a.run, handout: a.handout, lose: a.lose}
}

// end makes later calls of Progress and Expect return ErrStale, and ends the reports of
// task.Progress. It takes a.mu, so it waits for a call that is in progress.
func (a *active) end() {
	if reporter := a.reporter.Load(); reporter != nil {
		reporter.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// readAgainAfter is the delay of a task whose job cannot be read.
const readAgainAfter = 5 * time.Second

// Current returns a middleware for consumers that run the tasks of dispatched jobs. Before a task
// starts, it checks that the task belongs to the current run of its job. For a task with conditions
// (task.Conditions) it checks that the job runs. If the check fails, the handler does not run. The
// task then fails for good with [jobstore.ErrStale], without a retry.
//
// If the job cannot be read for another reason, the handler does not run, and the task runs again
// after 5 s ([task.Snooze]). This counts as no attempt. Tasks that belong to no job, and follow-up
// tasks of a job's task, pass unchecked.
//
// Without Current a task that is delivered again or submitted twice may run after the end of its
// job. [Progress] and [FromContext] work only with it, until the handler returns.
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
				return nil, task.Snooze(readAgainAfter)
			}
			a := &active{s: s, run: r, handout: jobs.Handout{Row: j}}
			defer a.end()
			own := *q
			own.AddProgressor(a)
			ctx = task.WithRequest(context.WithValue(ctx, activeKey{}, a), &own)
			return next.Handle(ctx, &own)
		})
	}
}
