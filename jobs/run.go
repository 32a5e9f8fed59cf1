package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/task"
)

// TaskID returns the id of the task that the present run of j is, or its last one. It depends on which job it is, by ID and Created, and on its Run
// alone, so that every process, before and after a crash, gives one run one id; jobs of two databases have different ones. That of a job which was made of a task is
// the task's own ([TaskOf]).
func TaskID(j Row) task.ID {
	if id, ok := TaskOf(&j.Job); ok {
		return id
	}
	return runOf(&j).taskID()
}

// run is what tells one run of a job from every other.
type run struct {
	id      ID
	number  int64
	created int64 // in microseconds: ids begin anew with a new database
}

func runOf(j *Row) run { return run{j.ID, j.Run, j.Created.UnixMicro()} }

func (r run) taskID() task.ID { return task.Derive("job", r.String()) }

// HeaderRun is the header in which the task of a dispatched job tells which run of which job it is.
const HeaderRun = "swarmiji-job-run"

// String is how a run travels.
func (r run) String() string {
	b := strconv.AppendInt(nil, int64(r.id), 10)
	b = strconv.AppendInt(append(b, ' '), r.number, 10)
	return string(strconv.AppendInt(append(b, ' '), r.created, 10))
}

// parseRun reads what String wrote.
func parseRun(s string) (run, bool) {
	var n [3]int64
	parts := strings.Split(s, " ")
	if len(parts) != len(n) {
		return run{}, false
	}
	for i, p := range parts {
		var err error
		if n[i], err = strconv.ParseInt(p, 10, 64); err != nil {
			return run{}, false
		}
	}
	r := run{ID(n[0]), n[1], n[2]}
	return r, r.String() == s
}

// ErrNoRun is what Progress returns outside of a run.
var ErrNoRun = errors.New("jobs: not in the run of a job")

// active is a run that a handler is in.
type active struct {
	s   *Service
	run run

	mu      sync.Mutex
	handout Handout
	over    bool // it has ended: what the handler still says counts for nothing
	lose    func()
}

type activeKey struct{}

// FromContext returns the job that the calling handler runs, as it was handed out, with its data as the handler has left them by
// [Progress]. It is false outside of a run. In a consumer it needs [Current].
func FromContext(ctx context.Context) (Handout, bool) {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return Handout{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handout, true
}

// Progress replaces the data of the job that the calling handler runs by v, which is a JSON object when it is written as JSON: how far it has come. Who asks
// for the job sees that while it runs, and if the process dies the next attempt begins with it. The error is [ErrStale] when the run is over or another has it,
// [ErrUnsupported] in a task with conditions, whose job keeps no progress, and [ErrNoRun] outside of a run. In a consumer it needs [Current].
func Progress(ctx context.Context, v any) error {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return ErrNoRun
	}
	data, err := errand.Marshal(v)
	if err != nil {
		return &FieldError{Field: "data", Problem: malformed, Detail: err.Error()}
	}
	if err := CheckData(data); err != nil {
		return err
	}
	if _, prepared := TaskOf(&a.handout.Job); prepared {
		return fmt.Errorf("%w: job %d is a task with conditions, which keeps no progress", ErrUnsupported, a.run.id)
	}
	return a.update(ctx, data)
}

// update writes data, one call at a time.
func (a *active) update(ctx context.Context, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return fmt.Errorf("%w: the handler of job %d has ended", ErrStale, a.run.id)
	}
	u := Update{ID: a.run.id, Token: a.handout.Token, Data: data}
	err := a.s.Update(ctx, u)
	if errors.Is(err, ErrStale) && a.lose == nil { // a dispatched run goes on when its job is handed out again
		var j Row
		if j, err = a.s.currentRun(ctx, a.run); err == nil {
			u.Token, a.handout.Token = j.Token, j.Token
			err = a.s.Update(ctx, u)
		}
	}
	if err == nil {
		a.handout.Data = data
	}
	return a.told(err)
}

// told notes what an answer of the service says of the run, and returns it as the handler is to see it.
func (a *active) told(err error) error {
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	if errors.Is(err, ErrStale) && a.lose != nil {
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
		return fmt.Errorf("%w: the handler of job %d has ended", ErrStale, a.run.id)
	}
	err := a.s.expect(ctx, a.run.id, a.handout.Token, key, respond)
	if err == nil {
		a.handout.Key, a.handout.Respond = key, respond.Or(a.handout.Respond)
	}
	return a.told(err)
}

// again returns what another function of the same attempt is in: it begins with what the one before has left.
func (a *active) again() *active {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &active{s: a.s, run: a.run, handout: a.handout, lose: a.lose}
}

// end has nothing count that the handler says from now on.
func (a *active) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// currentRun returns the job if this run of it goes on, else ErrStale.
func (s *Service) currentRun(ctx context.Context, r run) (Row, error) {
	j, err := s.Row(ctx, r.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return j, fmt.Errorf("%w: %w", ErrStale, err)
	case err == nil && (runOf(&j) != r || !j.State.Runs()):
		return j, fmt.Errorf("%w: job %d is %s in run %d", ErrStale, j.ID, j.State, j.Run)
	}
	return j, err
}

// againSoon is how long a task waits whose job cannot be asked about.
const againSoon = 5 * time.Second

// Current returns a middleware, for consumers that run the tasks of dispatched jobs: before a task starts it looks whether its run is the job's present one. A task
// whose job has moved on is not run; it fails with [ErrStale]. Of a task with conditions (task.Conditions) it looks whether its job runs. If the store does not
// answer the task is put back for 5 s. All other tasks pass, those that follow the task of a job included.
//
// Without it a task that is delivered again, or was submitted twice because an answer was lost, may run although the job has ended. With it
// [Progress] and [FromContext] work in the handlers.
func Current(s *Service) func(next task.Handler) task.Handler {
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, q *task.Request) (any, error) {
			var j Row
			var err error
			r, ok := parseRun(q.Headers[HeaderRun])
			switch {
			case q.Headers[task.HeaderConditions] == string(q.ID):
				j, err = s.conditioned(ctx, q.Name, q.ID)
				r = runOf(&j)
			case ok && r.taskID() == q.ID:
				j, err = s.currentRun(ctx, r)
			default:
				return next.Handle(ctx, q)
			}
			switch {
			case errors.Is(err, ErrStale):
				s.count.stale.Add(1)
				return nil, task.Fail(err)
			case err != nil:
				return nil, task.Snooze(againSoon)
			}
			a := &active{s: s, run: r, handout: Handout{Row: j}}
			defer a.end()
			return next.Handle(context.WithValue(ctx, activeKey{}, a), q)
		})
	}
}
