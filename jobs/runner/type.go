package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// Type is a kind of job whose answer comes from outside. Request sends a request to a service. The
// program that receives the answer calls [jobs.Service.Complete] or [jobs.Service.Reject] with the
// name and the key of the job. Until then the job is RUNNING with the Phase [jobstore.Awaiting],
// and no process has a goroutine or a lease for it.
//
// D is the type of the job's data, which must encode to a JSON object. A is the type of the answer.
//
// The functions run like handlers. Panics are recovered; [Progress] and [FromContext] work. ctx
// ends when the job is lost, at a hard stop of the runner, and at the attempt's Timeout. The
// functions run at least once: if a runner dies, they run again. An error of [task.Snooze],
// [task.Retry] or [task.Fail] has the same effect as in a consumer, and Retry is not called.
type Type[D, A any] struct {
	// Name is the name of the jobs.
	Name string
	// Key returns the key of the answer, from the data at the start of the attempt. No other open job
	// with this Name may have it. "" is an error of the attempt. Key is called in a transaction: it
	// must return quickly and depend only on its argument.
	Key func(data D) string
	// Request sends the request. An answer is accepted from before the call. An error ends the
	// attempt.
	Request func(ctx context.Context, data D) error
	// Response handles the answer and returns the final data of the job. An error ends the attempt.
	// nil: the answer ends the job, which stores it as its Answer.
	Response func(ctx context.Context, data D, answer A) (D, error)
	// Retry decides whether a failed attempt is repeated. It may change Data and At of the Failure.
	// true: the job is QUEUED for another attempt. false, or a panic: the job is FAILED. Default:
	// false.
	Retry func(ctx context.Context, f *Failure[D]) bool
	// Timeout limits each attempt, the wait for its answer included. After it the attempt fails with
	// [task.ErrAnswerTimeout]. Default: 24 h. Below 0: no limit.
	Timeout time.Duration
	// Priority, Weight and Windows are the defaults for the jobs of this type. If they are not set,
	// the defaults of [jobs.Spec] apply.
	Priority task.Opt[int]
	Weight   task.Opt[float64]
	Windows  *when.Windows
}

// Failure is a failed attempt, for Retry of a [Type].
type Failure[D any] struct {
	// Job is a copy of the job.
	Job jobs.Job
	// Err is the error of Request or Response, [task.ErrAnswerTimeout], or [task.ErrRejected] with the
	// reason of the refusal. A panic is [task.ErrPanic].
	Err error
	// Attempt is the number of this attempt; the first is 1.
	Attempt int
	// Data is the job's data. Retry may change it for the next attempt.
	Data D
	// At is the start of the next attempt, by this process's clock. Default: now plus
	// [task.DefaultRetryDelay]. Retry may change it. In a queue it is moved into the job's windows. A
	// time in the past means now.
	At time.Time
}

// Check returns an error for each of Name, Key and Request that is missing or invalid, joined, or
// nil.
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

// Register makes r run the jobs of this type. It also sets defaults in the runner's Service: each
// new job with this Name gets the type's Priority, Weight, Timeout and Windows, unless its Spec
// sets them. This applies to every caller that creates such a job.
//
// Returns the errors of [Type.Check], [task.ErrDuplicateTask] if r already runs jobs with this
// name, and [jobstore.ErrUnsupported] if r dispatches jobs. After an error nothing is registered.
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

// complete sets the unset fields of a spec to the defaults of the type. Weight, Timeout and Windows
// are set only for a job of a queue. A Timeout below 0 becomes 0, which means no limit.
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

// orElse sets *o to def if *o is unset.
func orElse[T any](o *task.Opt[T], def task.Opt[T]) {
	if !o.IsSet() {
		*o = def
	}
}

// dialog is a [Type] without type parameters. As a handler it sends the request, and lets the job
// wait for its answer.
type dialog struct {
	task.HandlerFunc
	key      func(data []byte) (string, error)
	response task.Handler // nil: the answer ends the job
	retry    func(f *Failure[[]byte]) task.HandlerFunc
	timeout  task.Opt[time.Duration]
}

// dialog returns the handler of the type. Its response and retry are nil if the type lacks them.
// Its timeout is unset if Timeout is 0, and 0 (no limit) if Timeout is below 0.
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

// ErrNoKey is the error of an attempt for which Key of its [Type] returns "".
var ErrNoKey = errors.New("jobs: the job has no key for its answer")

// key returns the key of the answer for data, as Type.Key computes it. Returns ErrNoKey if it is
// "", and other errors if the key is not valid or data do not fit D. It does not recover a panic of
// Key.
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

// request is the handler of an attempt. It calls Request with the decoded data and returns the
// verdict task.Defer for the job's key, so that the job waits for its answer. It first reserves the
// key (active.expect), unless a queue has stored the key at the start of the attempt.
//
// Returns ErrNoRun outside a job, and the errors of key, decode and expect; Request is then not
// called. Returns the error of Request.
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
	// the job was not started by a queue
	if respond := t.Response != nil; key != h.Key || respond != h.Respond {
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

// response is the handler of an answer. It calls Response with the decoded data and answer and
// returns its result, which becomes the data of the job.
//
// Returns ErrBadAnswer if the answer does not fit A, and task.ErrBadArgs if the data do not fit D.
// Returns ErrNoRun if ctx is not the context of a job.
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
	if err := taskio.Unmarshal(h.Answer, &answer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	return t.Response(ctx, d, answer)
}

// ErrBadAnswer is the error of an attempt whose answer does not fit the answer type of its [Type].
var ErrBadAnswer = errors.New("jobs: the answer does not fit the job's type")

// retry returns a handler that calls Type.Retry for f. The handler returns true to repeat the
// attempt; it has then set f.At, and f.Data, where nil means that the data stay. It returns false
// to let the job fail, and an error if the data cannot be decoded or encoded.
func (t Type[D, A]) retry(f *Failure[[]byte]) task.HandlerFunc {
	return func(ctx context.Context, _ *task.Request) (any, error) {
		typed := Failure[D]{Job: f.Job, Err: f.Err, Attempt: f.Attempt, At: f.At}
		if err := decode(f.Data, &typed.Data); err != nil {
			return false, err // writing unreadable data would destroy them
		}
		before, err := taskio.Marshal(typed.Data)
		if err != nil {
			return false, err
		}
		if !t.Retry(ctx, &typed) {
			return false, nil
		}
		after, err := taskio.Marshal(typed.Data)
		switch {
		case err != nil:
			return false, err
		case string(after) == string(before): // fields that D does not have stay
			f.Data = nil
		default:
			f.Data = after
		}
		f.At = typed.At
		return true, nil
	}
}

// Create creates one job of this type in a queue, and returns its id. An empty queue means no
// queue. opts change its Spec before it is checked. Returns the errors of [Type.Spec] and of
// [jobs.Service.Create].
func (t Type[D, A]) Create(ctx context.Context, s *jobs.Service, queue string, data D, opts ...func(*jobs.Spec)) (jobs.ID, error) {
	spec, err := t.Spec(queue, data, opts...)
	if err != nil {
		return 0, err
	}
	made, err := s.Create(ctx, spec)
	return made.ID, err
}

// Spec returns the Spec that [Type.Create] uses, for callers that create several jobs at once. It
// calls Key, sets the defaults of the type, and then calls opts. The defaults of the Service are
// not applied to this Spec. It creates nothing.
//
// Returns an error for an incomplete type, data that cannot be encoded, and [ErrNoKey] if the key
// is empty.
func (t Type[D, A]) Spec(queue string, data D, opts ...func(*jobs.Spec)) (jobs.Spec, error) {
	if err := t.Check(); err != nil {
		return jobs.Spec{}, err
	}
	text, err := taskio.Marshal(data)
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
		return jobs.Spec{}, fmt.Errorf("%w: Key of the type %q returns an empty text", ErrNoKey, t.Name)
	}
	return spec, nil
}
