package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// Hooks are functions that producers and consumers call for events of a task. Each field may be
// nil. Hooks are called from many goroutines and block the operation that they belong to. A panic
// in a before-hook vetoes the operation; in other hooks it is logged.
//
// Hooks run only for submissions and for runs of handlers. If a task ends without a run (expired,
// revoked, given up, no handler), only an event reports it.
type Hooks struct {
	// BeforeEnqueue runs before a task is sent. A producer calls it before it stages a submitted task.
	// A consumer (consumer.Config.Hooks) calls it before it sends a successor or a retry.
	//
	// It may change the envelope, but must replace Args and Headers instead of changing their
	// contents. It cannot change the start time of a retry.
	//
	// An error is a veto. Submit returns it. A vetoed successor fails, and so does a task whose retry
	// is vetoed.
	BeforeEnqueue func(ctx context.Context, queue string, e *task.Envelope) error
	// AfterEnqueue runs after the operation, for each task whose BeforeEnqueue returned nil. err is
	// nil when the broker has confirmed the task, else the reason. ctx has the values of the
	// submitter's context and does not end.
	AfterEnqueue func(ctx context.Context, queue string, e *task.Envelope, err error)

	// BeforeDequeue runs when a consumer has received the task from the broker. An error is a veto:
	// the task does not run. The verdict of the error is used as for BeforePerform.
	BeforeDequeue func(ctx context.Context, r *task.Request) error
	// Dequeue runs after BeforeDequeue if no BeforeDequeue returned an error. The task may still have
	// to wait, or may not run at all.
	Dequeue func(ctx context.Context, r *task.Request)
	// BeforePerform runs before the handler. An error is a veto: the handler does not run. The verdict
	// of the error is used ([task.Retry], [task.Snooze], [task.Fail]). An error without a verdict
	// fails the task without a retry.
	BeforePerform func(ctx context.Context, r *task.Request) error
	// AroundPerform wraps the handler, inside all BeforePerform. A panic in it is the run's error.
	AroundPerform Middleware
	// AfterPerform runs after the handler with its result and error, if the BeforePerform of the same
	// Hooks returned nil.
	AfterPerform func(ctx context.Context, r *task.Request, result any, err error)
	// OnSuccess, OnRetry and OnFailure run after AfterPerform, before the outcome is stored or sent.
	// One of them runs, according to the outcome of the attempt, also if a hook vetoed it. After the
	// last retry, the error of OnFailure is a [*task.MaxRetriesError].
	//
	// They do not run after a snooze or a [task.Defer]. They also do not run if the consumer stops or
	// the broker takes the task back, because the attempt does not count then.
	OnSuccess func(ctx context.Context, r *task.Request, result any)
	OnRetry   func(ctx context.Context, r *task.Request, o task.Outcome)
	OnFailure func(ctx context.Context, r *task.Request, err error)
}

// sends reports whether h has an enqueue-hook.
func (h *Hooks) sends() bool { return h.BeforeEnqueue != nil || h.AfterEnqueue != nil }

// performs reports whether h has a hook around or after the run of a handler.
func (h *Hooks) performs() bool {
	return h.BeforePerform != nil || h.AroundPerform != nil || h.AfterPerform != nil || h.OnSuccess != nil || h.OnRetry != nil || h.OnFailure != nil
}

// Middleware returns the perform-hooks as middleware of one task ([task.Task.Handle]), outside its
// time limits ([Outside]). It must come before a retry handler or [Retry] in the list of
// middleware; otherwise OnRetry and OnFailure do not see their decisions. Default logger:
// slog.Default().
func (h Hooks) Middleware(logger *slog.Logger) Middleware {
	return Outside(performer([]*Hooks{&h}, logger))
}

// HookSet holds hooks for all tasks and for single tasks. Before-hooks run in order, those for all
// tasks first. Other hooks run in the reverse order. The zero value has no hooks. Do not change a
// HookSet after a producer or a consumer got it.
type HookSet struct {
	Global []Hooks
	Tasks  map[string][]Hooks // by the task's name
}

// of returns the hooks of a task for which use returns true, the global ones first.
func (s *HookSet) of(name string, use func(*Hooks) bool) []*Hooks {
	var hs []*Hooks
	for _, list := range [...][]Hooks{s.Global, s.Tasks[name]} {
		for i := range list {
			if use(&list[i]) {
				hs = append(hs, &list[i])
			}
		}
	}
	return hs
}

// hooksByTask holds the hooks of one kind for each task. The lists of single tasks include the
// global hooks.
type hooksByTask struct {
	global []*Hooks
	tasks  map[string][]*Hooks
}

// byTask returns the hooks for which use returns true. It returns nil without such hooks.
func (s *HookSet) byTask(use func(*Hooks) bool) *hooksByTask {
	b := &hooksByTask{global: (&HookSet{Global: s.Global}).of("", use), tasks: make(map[string][]*Hooks)}
	for name := range s.Tasks {
		if hs := s.of(name, use); len(hs) > len(b.global) {
			b.tasks[name] = hs
		}
	}
	if len(b.global) == 0 && len(b.tasks) == 0 {
		return nil
	}
	return b
}

// of returns the hooks of a task: its own list, which includes the global hooks, else the global
// hooks.
func (b *hooksByTask) of(name string) []*Hooks {
	if hs, own := b.tasks[name]; own {
		return hs
	}
	return b.global
}

// Middleware returns the perform-hooks of a task as middleware; nil without hooks. A consumer uses
// it for consumer.Config.Hooks, as its outermost middleware. Default logger: slog.Default().
func (s HookSet) Middleware(name string, logger *slog.Logger) Middleware {
	hs := s.of(name, (*Hooks).performs)
	if len(hs) == 0 {
		return nil
	}
	return performer(hs, logger)
}

// SendMiddleware returns the enqueue-hooks as middleware; nil without hooks. A producer uses it for
// producer.Config.Hooks, as its outermost middleware. Default logger: slog.Default().
func (s HookSet) SendMiddleware(logger *slog.Logger) SendMiddleware {
	hooks := s.byTask((*Hooks).sends)
	if hooks == nil {
		return nil
	}
	return func(next Sender) Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			return enqueue(ctx, queue, e, hooks.of(e.Name), next, logger)
		}
	}
}

// Enqueued returns a function that runs the BeforeEnqueue hooks and returns their veto. Call after,
// which runs AfterEnqueue, with the result of the operation. Enqueued returns nil without such
// hooks. Consumers use it.
func (s HookSet) Enqueued(logger *slog.Logger) func(ctx context.Context, queue string, e *task.Envelope) (after func(error), veto error) {
	hooks := s.byTask((*Hooks).sends)
	if hooks == nil {
		return nil
	}
	return func(ctx context.Context, queue string, e *task.Envelope) (func(error), error) {
		return beforeEnqueue(ctx, queue, e, hooks.of(e.Name), logger)
	}
}

// Dequeued returns a function that runs the BeforeDequeue and Dequeue hooks and returns their veto.
// It returns nil without such hooks. Consumers use it.
func (s HookSet) Dequeued(logger *slog.Logger) func(ctx context.Context, r *task.Request) error {
	hooks := s.byTask(func(h *Hooks) bool { return h.BeforeDequeue != nil || h.Dequeue != nil })
	if hooks == nil {
		return nil
	}
	return func(ctx context.Context, r *task.Request) error {
		hs := hooks.of(r.Name)
		for _, h := range hs {
			if h.BeforeDequeue == nil {
				continue
			}
			if err := guard.Call(func() error { return h.BeforeDequeue(ctx, r) }); err != nil {
				return veto(err)
			}
		}
		for _, h := range hs {
			if h.Dequeue != nil {
				Guard(ctx, logger, "dequeue", func() { h.Dequeue(ctx, r) }, taskAttrs(r)...)
			}
		}
		return nil
	}
}

// beforeEnqueue runs the BeforeEnqueue hooks in order, until the first error, which is the veto.
// The returned after runs the AfterEnqueue hooks of those that returned nil, the last first. If
// beforeEnqueue returns an error, it has already called after.
func beforeEnqueue(ctx context.Context, queue string, e *task.Envelope, hs []*Hooks, logger *slog.Logger) (after func(error), err error) {
	passed := 0
	for ; passed < len(hs); passed++ {
		before := hs[passed].BeforeEnqueue
		if before == nil {
			continue
		}
		if err = guard.Call(func() error { return before(ctx, queue, e) }); err != nil {
			break
		}
	}
	after = func(err error) {
		ctx := context.WithoutCancel(ctx)
		for _, h := range slices.Backward(hs[:passed]) {
			if h.AfterEnqueue != nil {
				Guard(ctx, logger, "after enqueue", func() { h.AfterEnqueue(ctx, queue, e, err) },
					slog.String(LogTaskID, string(e.ID)), slog.String(LogTask, e.Name), slog.String(LogQueue, queue))
			}
		}
	}
	if err != nil {
		after(err)
	}
	return after, err
}

// enqueue runs the BeforeEnqueue hooks and then next. It returns their veto, or the error of next.
// The AfterEnqueue hooks run when the submission has ended, or, if ctx does not belong to a
// submission, when next has returned.
func enqueue(ctx context.Context, queue string, e *task.Envelope, hs []*Hooks, next Sender, logger *slog.Logger) error {
	after, err := beforeEnqueue(ctx, queue, e, hs, logger)
	if err != nil {
		return err
	}
	if OnConfirm(ctx, after) {
		return next(ctx, queue, e)
	}
	err = next(ctx, queue, e)
	after(err)
	return err
}

// performer returns the perform-hooks hs as middleware. A panic of AroundPerform becomes the error
// of the run.
func performer(hs []*Hooks, logger *slog.Logger) Middleware {
	return func(next task.Handler) task.Handler {
		for _, h := range slices.Backward(hs) {
			if h.AroundPerform != nil {
				next = Recover()(h.AroundPerform(next))
			}
		}
		return &performed{hooks: hs, next: next, logger: logger}
	}
}

// performed is a handler that calls hooks before and after next.
type performed struct {
	hooks  []*Hooks
	next   task.Handler
	logger *slog.Logger
}

var errNoReturn = fmt.Errorf("%w: it did not return", task.ErrPanic)

// Handle runs the BeforePerform hooks in order, the handler next, and then the hooks of after, also
// if next panics or calls runtime.Goexit. After the error of a BeforePerform hook the handler does
// not run, and Handle returns that error as veto converts it.
func (p *performed) Handle(ctx context.Context, r *task.Request) (res any, err error) {
	passed := 0
	for ; passed < len(p.hooks); passed++ {
		before := p.hooks[passed].BeforePerform
		if before == nil {
			continue
		}
		if err = guard.Call(func() error { return before(ctx, r) }); err != nil {
			err = veto(err)
			break
		}
	}
	if err == nil {
		err = errNoReturn // kept for an unrecovered panic and for runtime.Goexit
		defer func() { p.after(ctx, r, passed, res, err) }()
		res, err = p.next.Handle(ctx, r)
		return res, err
	}
	p.after(ctx, r, passed, nil, err)
	return nil, err
}

// veto converts the error of a before-hook to the error of the run. An error without a verdict
// becomes [task.Fail], so that the task is not retried; other errors stay.
func veto(err error) error {
	if isVerdict(err) {
		return err
	}
	return task.Fail(err)
}

// after runs the AfterPerform hooks and the hooks for the outcome (see conclusion), the last Hooks
// first. It runs AfterPerform only of the first passed Hooks, those whose BeforePerform returned
// nil. Panics are logged.
func (p *performed) after(ctx context.Context, r *task.Request, passed int, res any, err error) {
	attrs := taskAttrs(r)
	conclude, what := p.conclusion(ctx, r, res, err)
	for i, h := range slices.Backward(p.hooks) {
		if h.AfterPerform != nil && i < passed {
			Guard(ctx, p.logger, "after perform", func() { h.AfterPerform(ctx, r, res, err) }, attrs...)
		}
		if conclude != nil {
			Guard(ctx, p.logger, what, func() { conclude(h) }, attrs...)
		}
	}
}

// conclusion returns a function that calls the hook of one Hooks for the outcome of the attempt,
// and the name of that hook. The function is nil for a snooze and a deferral, and if the attempt
// does not count (see void).
func (p *performed) conclusion(ctx context.Context, r *task.Request, res any, err error) (conclude func(*Hooks), what string) {
	if void(ctx, r, err) {
		return nil, ""
	}
	o := task.Outcome{}
	// a method of err panicked
	if panicked := guard.Call(func() error { o = r.Outcome(err); return nil }); panicked != nil {
		o = task.Outcome{State: task.StateFailed, Err: panicked}
	}
	switch o.State {
	case task.StateSucceeded:
		return func(h *Hooks) {
			if h.OnSuccess != nil {
				h.OnSuccess(ctx, r, res)
			}
		}, "on success"
	case task.StateRetrying:
		return func(h *Hooks) {
			if h.OnRetry != nil {
				h.OnRetry(ctx, r, o)
			}
		}, "on retry"
	case task.StateFailed:
		return func(h *Hooks) {
			if h.OnFailure != nil {
				h.OnFailure(ctx, r, o.Err)
			}
		}, "on failure"
	}
	return nil, ""
}

// void reports whether an attempt does not count: the broker has taken the task back, or the
// consumer stops and releases the task. A task acknowledged before its start cannot be released.
func void(ctx context.Context, r *task.Request, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	if errors.Is(context.Cause(ctx), task.ErrLeaseLost) {
		return true
	}
	return err != nil && r.Effective.Idempotent.Or(true)
}

// Guard calls fn, a hook without an error result, and recovers its panic. It logs the panic as an
// error with attrs and the name of the hook. Default logger: slog.Default(). Producers and
// consumers use it for their own hooks.
func Guard(ctx context.Context, logger *slog.Logger, hook string, fn func(), attrs ...slog.Attr) {
	p, panicked := errors.AsType[*task.PanicError](guard.Call(func() error { fn(); return nil }))
	if !panicked {
		return
	}
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, slog.LevelError, "a hook panicked", append(slices.Clip(attrs),
		slog.String("hook", hook), slog.String("error", p.Error()), slog.String("stack", p.Trace))...)
}

// taskAttrs returns the attributes of the task of r for log lines.
func taskAttrs(r *task.Request) []slog.Attr {
	return []slog.Attr{
		slog.String(LogTaskID, string(r.ID)), slog.String(LogTask, r.Name), slog.String(LogQueue, r.Queue), slog.Int(LogAttempt, r.Retries+1),
	}
}
