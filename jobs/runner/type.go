package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// Type is a kind of job whose answer comes from outside: Request sends something to a service, and what comes back later, by whatever road, is handed to
// [Service.Complete] or [Service.Reject] by the name and the key of the job. In between the job is RUNNING, with the Phase [Awaiting], and nothing in any process belongs to it: no
// goroutine, no lease. D is what the jobs hold, which JSON writes as an object, and A is the answer.
//
// The functions run as handlers do: panics are contained, [Progress] and [FromContext] work, and ctx ends when the job is lost, when the runner stops at once, and at the end of the attempt's
// Timeout. They run at least once: a runner that dies on its way has them run again. What one returns that is made by [task.Snooze], [task.Retry] or [task.Fail] means what it
// means to a consumer, and Retry is not asked.
type Type[D, A any] struct {
	// Name is that of the jobs.
	Name string
	// Key computes what the answer is found by, from the data that the attempt begins with. No other job of this Name that is not over may have it; "" is an error of the attempt. It is
	// called in a transaction: it looks at nothing but its argument, and is quick.
	Key func(data D) string
	// Request sends. The answer is awaited from before it is called. An error ends the attempt.
	Request func(ctx context.Context, data D) error
	// Response looks at the answer, and returns what the job holds at its end. An error ends the attempt. nil: the answer ends the job, which keeps it
	// as its Answer.
	Response func(ctx context.Context, data D, answer A) (D, error)
	// Retry is asked what becomes of a job whose attempt has failed, and may change the Failure's Data and At. true: it is QUEUED for another attempt. false, or a panic: it is FAILED. nil: false.
	Retry func(ctx context.Context, f *Failure[D]) bool
	// Timeout is how long an attempt may take, its answer included. Then it has failed with [task.ErrAnswerTimeout]. 0: 24 h. Below 0: there is no end.
	Timeout time.Duration
	// Priority, Weight and Windows are those of jobs that are made without their own. Unset, unset and nil: see [Spec].
	Priority task.Opt[int]
	Weight   task.Opt[float64]
	Windows  *when.Windows
}

// Failure is an attempt that has failed, as a [Type]'s Retry sees it.
type Failure[D any] struct {
	// Job is a copy of the job.
	Job jobs.Job
	// Err is why: what Request or Response returned, [task.ErrAnswerTimeout], or [task.ErrRejected] with the reason of the refusal. A panic is [task.ErrPanic].
	Err error
	// Attempt is the number of this attempt: 1, 2...
	Attempt int
	// Data are the job's, and may be changed for the next attempt.
	Data D
	// At is when the next attempt is to begin, by the clock of this process, and may be changed: now and [task.DefaultRetryDelay]. In a queue it is moved into the job's window. A time in the past
	// is now.
	At time.Time
}

// Check returns what is missing, joined, or nil.
func (t Type[D, A]) Check() error {
	errs := []error{jobstore.CheckName(t.Name)}
	if t.Key == nil {
		errs = append(errs, fmt.Errorf("jobs: the type %q has no Key", t.Name))
	}
	if t.Request == nil {
		errs = append(errs, fmt.Errorf("jobs: the type %q has no Request", t.Name))
	}
	return errors.Join(errs...)
}

// Register has r run the jobs of this type. From then on the runner's Service makes each job of this Name with the type's Priority, Weight, Timeout and Windows, where its
// Spec says nothing, whoever asks for it. It is [task.ErrDuplicateTask] if r runs jobs of this name already, and [ErrUnsupported] if r dispatches jobs.
func (t Type[D, A]) Register(r *Runner) error {
	if err := t.Check(); err != nil {
		return err
	}
	if err := r.Register(t.Name, t.dialog(), task.Metadata{}); err != nil {
		return err
	}
	r.c.Service.SetDefaults(t.Name, func(s *jobs.Spec) { t.complete(s) })
	return nil
}

// complete has a spec say what the type says, where it says nothing itself. Weight, Timeout and Windows are those of jobs of queues.
func (t Type[D, A]) complete(s *jobs.Spec) {
	orElse(&s.Priority, t.Priority)
	if s.Queue == "" {
		return
	}
	orElse(&s.Weight, t.Weight)
	if t.Timeout != 0 {
		orElse(&s.Timeout, task.Set(max(t.Timeout, 0)))
	}
	if s.Windows == nil {
		s.Windows = t.Windows
	}
}

// orElse sets an option that is unset.
func orElse[T any](o *task.Opt[T], def task.Opt[T]) {
	if !o.IsSet() {
		*o = def
	}
}

// dialog is a [Type] without its types. As a handler it sends the request, and leaves the job to its answer.
type dialog struct {
	task.HandlerFunc
	key      func(data []byte) (string, error)
	response task.Handler // nil: the answer ends the job
	retry    func(f *Failure[[]byte]) task.HandlerFunc
	timeout  task.Opt[time.Duration]
}

func (t Type[D, A]) dialog() *dialog {
	a := &dialog{HandlerFunc: t.request, key: t.key}
	if t.Response != nil {
		a.response = task.HandlerFunc(t.response)
	}
	if t.Retry != nil {
		a.retry = t.retry
	}
	if t.Timeout != 0 {
		a.timeout = task.Set(max(t.Timeout, 0))
	}
	return a
}

// ErrNoKey is the error of an attempt for which a [Type]'s Key is "".
var ErrNoKey = errors.New("jobs: the job has no key for its answer")

func (t Type[D, A]) key(data []byte) (string, error) {
	var d D
	if err := decode(data, &d); err != nil {
		return "", err
	}
	key := t.Key(d)
	if key == "" {
		return "", ErrNoKey
	}
	return key, jobstore.CheckKey(key)
}

// request is the handler of an attempt.
func (t Type[D, A]) request(ctx context.Context, q *task.Request) (any, error) {
	a, ok := ctx.Value(activeKey{}).(*active)
	if !ok {
		return nil, ErrNoRun
	}
	h, _ := FromContext(ctx)
	key, err := t.key(h.Data)
	if err != nil {
		return nil, err
	}
	if respond := t.Response != nil; key != h.Key || respond != h.Respond { // no queue has begun it
		if err := a.expect(ctx, key, task.Set(respond)); err != nil {
			return nil, err
		}
	}
	var d D
	if err := decode(h.Data, &d); err != nil {
		return nil, err
	}
	if err := t.Request(ctx, d); err != nil {
		return nil, err
	}
	return nil, task.Defer(key)
}

// response is the handler of an answer. Its result is the job's data.
func (t Type[D, A]) response(ctx context.Context, _ *task.Request) (any, error) {
	h, ok := FromContext(ctx)
	if !ok {
		return nil, ErrNoRun
	}
	var d D
	if err := decode(h.Data, &d); err != nil {
		return nil, err
	}
	var answer A
	if err := errand.Unmarshal(h.Answer, &answer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	return t.Response(ctx, d, answer)
}

// ErrBadAnswer is the error of an attempt whose answer is not what its [Type] wants.
var ErrBadAnswer = errors.New("jobs: the answer does not fit the job's type")

// retry returns the handler that asks Retry. Its result is whether there is another attempt, and then it has brought f up to date: Data are nil if they stay as they
// are.
func (t Type[D, A]) retry(f *Failure[[]byte]) task.HandlerFunc {
	return func(ctx context.Context, _ *task.Request) (any, error) {
		typed := Failure[D]{Job: f.Job, Err: f.Err, Attempt: f.Attempt, At: f.At}
		if err := decode(f.Data, &typed.Data); err != nil {
			return false, err // to write what could not be read would destroy it
		}
		before, err := errand.Marshal(typed.Data)
		if err != nil {
			return false, err
		}
		if !t.Retry(ctx, &typed) {
			return false, nil
		}
		after, err := errand.Marshal(typed.Data)
		switch {
		case err != nil:
			return false, err
		case string(after) == string(before): // data that D does not know stay
			f.Data = nil
		default:
			f.Data = after
		}
		f.At = typed.At
		return true, nil
	}
}

// Create makes a job of this type in a queue; "": in none. opts change its Spec, before it is checked.
func (t Type[D, A]) Create(ctx context.Context, s *jobs.Service, queue string, data D, opts ...func(*jobs.Spec)) (jobs.ID, error) {
	spec, err := t.Spec(queue, data, opts...)
	if err != nil {
		return 0, err
	}
	made, err := s.Create(ctx, spec)
	return made.ID, err
}

// Spec is what [Type.Create] makes a job of, for those who make several at once.
func (t Type[D, A]) Spec(queue string, data D, opts ...func(*jobs.Spec)) (jobs.Spec, error) {
	if err := t.Check(); err != nil {
		return jobs.Spec{}, err
	}
	text, err := errand.Marshal(data)
	if err != nil {
		return jobs.Spec{}, &jobs.FieldError{Field: "data", Problem: rules.Malformed, Detail: err.Error()}
	}
	spec := jobs.Spec{Name: t.Name, Data: text, Queue: queue, Key: t.Key(data), Respond: t.Response != nil}
	t.complete(&spec)
	spec.NoDefaults = true
	for _, o := range opts {
		o(&spec)
	}
	if spec.Key == "" {
		return jobs.Spec{}, fmt.Errorf("%w: the type %q computes none", ErrNoKey, t.Name)
	}
	return spec, nil
}
