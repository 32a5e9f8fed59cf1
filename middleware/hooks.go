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

// Hooks are functions that a producer and a consumer call when something happens to a task. Each field may be nil. They are
// called from many goroutines, and what they concern waits for them. A panic in a hook is the hook's own error: in a before-hook
// it is a veto, in any other it is logged and nothing else is harmed.
//
// Hooks see what handlers and submissions come to. What a task comes to without a run (expired, revoked, given up, no handler)
// is told by events.
type Hooks struct {
	// BeforeEnqueue runs before a task is sent: by a producer before a submitted task is staged,
	// and by a consumer (consumer.Config.Hooks) before a successor or a retry. It may change the
	// envelope, its Args and Headers only by replacing them; when a retry starts is not its to say.
	// An error is a veto: Submit returns it; a successor that is not sent has failed, and so has a
	// task that is not retried.
	BeforeEnqueue func(ctx context.Context, queue string, e *task.Envelope) error
	// AfterEnqueue runs when that has ended, for each task whose BeforeEnqueue has passed: with nil
	// when the broker has confirmed the task, else with the reason. ctx has the values of the
	// submitter's and does not end.
	AfterEnqueue func(ctx context.Context, queue string, e *task.Envelope, err error)

	// BeforeDequeue runs when a consumer has taken the task from the broker. An error is a veto:
	// the task does not run, and the error's verdict counts as with BeforePerform.
	BeforeDequeue func(ctx context.Context, r *task.Request) error
	// Dequeue runs after that, if all BeforeDequeue have passed. The task may still have to wait,
	// or not be run at all.
	Dequeue func(ctx context.Context, r *task.Request)
	// BeforePerform runs before the handler. An error is a veto: the handler does not run. The error's verdict counts
	// ([task.Retry], [task.Snooze], [task.Fail]); one without a verdict fails the task for good.
	BeforePerform func(ctx context.Context, r *task.Request) error
	// AroundPerform wraps the handler, inside all BeforePerform. A panic in it is the run's error.
	AroundPerform Middleware
	// AfterPerform runs after the handler, with what came of it, if this Hooks' BeforePerform has passed.
	AfterPerform func(ctx context.Context, r *task.Request, result any, err error)
	// OnSuccess, OnRetry and OnFailure run after that, one of them, by what the attempt comes to: also when another hook
	// has vetoed it, and before anything is stored or sent. None runs after a snooze or a [task.Defer], and none when the consumer stops or
	// the broker has taken the task back, since then the attempt counts for nothing. A failure's error is a
	// [*task.MaxRetriesError] when the retries are used up.
	OnSuccess func(ctx context.Context, r *task.Request, result any)
	OnRetry   func(ctx context.Context, r *task.Request, o task.Outcome)
	OnFailure func(ctx context.Context, r *task.Request, err error)
}

func (h *Hooks) sends() bool { return h.BeforeEnqueue != nil || h.AfterEnqueue != nil }

func (h *Hooks) performs() bool {
	return h.BeforePerform != nil || h.AroundPerform != nil || h.AfterPerform != nil || h.OnSuccess != nil || h.OnRetry != nil || h.OnFailure != nil
}

// Middleware makes the perform-hooks into middleware for one task ([task.Task.Handle]), around its time limits ([Outside]). Where
// a retry handler or [Retry] lies outside of it, OnRetry and OnFailure do not know of their decisions: put hooks first. A nil
// logger means slog.Default().
func (h Hooks) Middleware(logger *slog.Logger) Middleware {
	return Outside(performer([]*Hooks{&h}, logger))
}

// HookSet are hooks of all tasks and of single ones. Before-hooks run in order, those of all tasks first; the others in
// the reverse order. The zero value has none. It must not be changed once a producer or a consumer has it.
type HookSet struct {
	Global []Hooks
	Tasks  map[string][]Hooks // by the task's name
}

// of returns the hooks of a task that use lets through.
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

// hooksByTask are the hooks of one kind, resolved: those of tasks with hooks of their own include
// the global ones.
type hooksByTask struct {
	global []*Hooks
	tasks  map[string][]*Hooks
}

// byTask resolves the hooks that use lets through; nil: there are none.
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

// of returns the hooks of a task.
func (b *hooksByTask) of(name string) []*Hooks {
	if hs, own := b.tasks[name]; own {
		return hs
	}
	return b.global
}

// Middleware makes the perform-hooks of a task into middleware, nil where there are none. A consumer does it by itself
// (consumer.Config.Hooks), outermost. A nil logger means slog.Default().
func (s HookSet) Middleware(name string, logger *slog.Logger) Middleware {
	hs := s.of(name, (*Hooks).performs)
	if len(hs) == 0 {
		return nil
	}
	return performer(hs, logger)
}

// SendMiddleware makes the enqueue-hooks into middleware, nil where there are none. A producer does it by itself
// (producer.Config.Hooks), outermost. A nil logger means slog.Default().
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

// Enqueued returns a function that runs BeforeEnqueue; after runs AfterEnqueue. nil: there are no
// such hooks. Consumers use it.
func (s HookSet) Enqueued(logger *slog.Logger) func(ctx context.Context, queue string, e *task.Envelope) (after func(error), veto error) {
	hooks := s.byTask((*Hooks).sends)
	if hooks == nil {
		return nil
	}
	return func(ctx context.Context, queue string, e *task.Envelope) (func(error), error) {
		return beforeEnqueue(ctx, queue, e, hooks.of(e.Name), logger)
	}
}

// Dequeued returns a function that runs BeforeDequeue and Dequeue; its error is a veto. nil: there
// are no such hooks. Consumers use it.
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

// beforeEnqueue runs BeforeEnqueue. After a veto AfterEnqueue has run already.
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

// performer is the middleware of perform-hooks.
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

type performed struct {
	hooks  []*Hooks
	next   task.Handler
	logger *slog.Logger
}

var errNoReturn = fmt.Errorf("%w: it did not return", task.ErrPanic)

// Handle runs the hooks around a run.
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
		err = errNoReturn // a panic that nobody inside has caught, or runtime.Goexit
		defer func() { p.after(ctx, r, passed, res, err) }()
		res, err = p.next.Handle(ctx, r)
		return res, err
	}
	p.after(ctx, r, passed, nil, err)
	return nil, err
}

// veto is the error of a run that a before-hook has refused: an error without a verdict is final.
func veto(err error) error {
	if isVerdict(err) {
		return err
	}
	return task.Fail(err)
}

// after runs the hooks that follow a run, the last first.
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

// conclusion returns what calls the hook that fits the attempt's outcome, nil when the attempt counts for nothing.
func (p *performed) conclusion(ctx context.Context, r *task.Request, res any, err error) (conclude func(*Hooks), what string) {
	if void(ctx, r, err) {
		return nil, ""
	}
	o := task.Outcome{}
	if panicked := guard.Call(func() error { o = r.Outcome(err); return nil }); panicked != nil { // in a method of err
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

// void reports whether an attempt counts for nothing: the broker has taken the task back, or the consumer stops and gives
// it back. One that was acknowledged before its start cannot be given back.
func void(ctx context.Context, r *task.Request, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	if errors.Is(context.Cause(ctx), task.ErrLeaseLost) {
		return true
	}
	return err != nil && r.Effective.Idempotent.Or(true)
}

// Guard calls a hook that returns nothing. What it panics with is logged: as an error, with the hook's name. A nil logger means
// slog.Default(). Producers and consumers use it for hooks of their own.
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

func taskAttrs(r *task.Request) []slog.Attr {
	return []slog.Attr{
		slog.String(LogTaskID, string(r.ID)), slog.String(LogTask, r.Name), slog.String(LogQueue, r.Queue), slog.Int(LogAttempt, r.Retries+1),
	}
}
