package task

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
)

// DefaultBatchWait is the default of BatchOptions.Wait.
const DefaultBatchWait = 100 * time.Millisecond

// ErrNoVerdict is the error of a task whose batch handler has returned without a call of Return for
// the task.
var ErrNoVerdict = errors.New("swarmiji: the batch handler has not called Return for this task")

// BatchOptions limits the batches of [Task.HandleBatch].
type BatchOptions struct {
	// Max is the largest number of tasks in one call, 1 or more. Required. Each task of a batch holds
	// a worker, so its queue needs at least Max workers.
	Max int
	// Wait is the longest time that the first task of a batch waits for others. Default: 100ms. A task
	// with a time limit waits at most half of that limit.
	Wait time.Duration
}

// BatchItem is one task of a batch: its arguments, its context, and the place for its outcome. Its
// methods are safe for concurrent use.
type BatchItem[A, R any] struct {
	Args A // arguments of the task

	ctx     context.Context
	request *Request
	called  bool // a call has it; guarded by the lock of its batches

	mu     sync.Mutex
	result R
	err    error
	set    bool // Return was called
}

// Context returns the context of the task, which is that of a handler of [Task.Handle]. It ends
// when the task is revoked, passes its time limit or is lost, also during the call. Use it for
// [FromContext], [Progress], [SettleTx], [Expect] and submissions that belong to the task.
func (i *BatchItem[A, R]) Context() context.Context {
	if i.ctx == nil {
		return context.Background()
	}
	return i.ctx
}

// Return sets the result and the error of the task, as a handler of [Task.Handle] returns them. All
// errors have the same meaning as there. The last call counts. It takes effect when the batch
// handler returns; a later call has no effect.
func (i *BatchItem[A, R]) Return(result R, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.result, i.err, i.set = result, err, true
}

// HandleBatch registers fn as the function of the task, for several tasks in one call. A call gets
// up to o.Max tasks of one queue. It begins when o.Max tasks have come, or o.Wait after the first
// one. It begins earlier if no further task can come: all workers of the queue wait in batches, the
// queue is paused, or the consumer stops. Calls run concurrently.
//
// fn calls Return of each item. Then each task has the outcome of its own:
//
//   - Return was called, and fn returns nil: the result or the error of Return counts.
//   - Return was not called: the task is retried with the error [ErrNoVerdict].
//   - fn returns an error or panics: so no task has succeeded. An error of Return counts, and each
//     other task is retried with the error of fn. If that error has a verdict, such as [Snooze] or
//     [Fail], the verdict applies to these tasks.
//
// "Retried" means up to the task's MaxRetries, after its RetryDelay or by its [RetryPolicy]. A task
// that runs at most once is not retried without a policy that says so: it fails.
//
// A task that is retried has a call of its own, at once: one bad task cannot fail the others again.
// The same holds in quarantine, after a start of the task has ended its process. A snoozed task
// joins a batch again.
//
// Time limit, middleware, limits, lease, retries and result belong to each task. They include its
// wait for others. A task whose context ends before the call leaves the batch. During the call its
// item stays, and the other tasks continue.
//
// The ctx of fn has the values of the consumer's Run and those of no task. It ends when the
// contexts of all tasks of the call have ended.
//
// wrap is middleware as in Handle, around each task. Outside of a consumer, for example in a job
// runner, each call has one task.
//
// Returns an error if fn is nil, if o is invalid, and if no queue of the consumer runs o.Max tasks
// at once. Also returns the error of r.Register.
func (t Task[A, R]) HandleBatch(r Registrar, o BatchOptions, fn func(ctx context.Context, batch []*BatchItem[A, R]) error, wrap ...func(Handler) Handler) error {
	switch {
	case fn == nil:
		return fmt.Errorf("swarmiji: the handler of task %q is nil", t.name)
	case o.Max < 1:
		return fmt.Errorf("swarmiji: task %q: BatchOptions.Max is %d; set it to the largest number of tasks in one call", t.name, o.Max)
	case o.Wait < 0:
		return fmt.Errorf("swarmiji: task %q: BatchOptions.Wait is %s; it must not be negative", t.name, o.Wait)
	case o.Wait == 0:
		o.Wait = DefaultBatchWait
	}
	if c, ok := capability.As[BatchRegistrar](r); ok {
		if err := c.CheckBatch(t.name, t.Metadata().Queue.Or(""), o.Max); err != nil {
			return err
		}
	}
	b := &batches[A, R]{o: o, fn: fn, waiting: make(map[BatchHost]*batch[A, R])}
	return t.register(r, HandlerFunc(b.handle), wrap)
}

// batches are the batches of one HandleBatch.
type batches[A, R any] struct {
	o  BatchOptions
	fn func(ctx context.Context, batch []*BatchItem[A, R]) error

	mu      sync.Mutex
	waiting map[BatchHost]*batch[A, R] // batches with room, by queue
}

// batch is the tasks of one call.
type batch[A, R any] struct {
	host   BatchHost
	items  []*BatchItem[A, R] // guarded by batches.mu until the call begins
	begin  context.CancelFunc // ends the wait for more tasks
	called bool               // the call has begun; guarded by batches.mu
	done   chan struct{}      // closed when the call has ended
	err    error              // error of the call; read it after done
}

// handle runs one task: in a call of its own, or with the others of its batch. It blocks until the
// call has ended, or until ctx ends before the call.
func (b *batches[A, R]) handle(ctx context.Context, r *Request) (any, error) {
	item := &BatchItem[A, R]{ctx: ctx, request: r}
	if err := r.Bind(&item.Args); err != nil {
		return nil, err
	}
	if own, ok := FromContext(ctx); ok {
		own.result = reflect.TypeFor[R]()
		item.request = own
	}
	own := item.request
	if own.host == nil || own.Quarantined || own.Retries > 0 || b.o.Max == 1 {
		alone := &batch[A, R]{host: own.host, items: []*BatchItem[A, R]{item}, done: make(chan struct{})}
		item.called = true
		alone.call(b.fn)
		return item.outcome(alone.err)
	}
	c := b.join(item)
	if limit := own.limit(); limit > 0 && limit/2 < b.o.Wait {
		defer time.AfterFunc(limit/2, c.begin).Stop()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if !b.leave(c, item) {
			<-c.done
		}
	}
	if !item.called {
		return nil, context.Cause(ctx)
	}
	return item.outcome(c.err)
}

// limit returns the shorter time limit of the task, or 0 if there is no limit.
func (r *Request) limit() time.Duration {
	soft, hard := r.Effective.SoftTimeLimit.Or(0), r.Effective.TimeLimit.Or(0)
	if soft > 0 && (hard <= 0 || soft < hard) {
		return soft
	}
	return max(hard, 0)
}

// join adds item to the batch of its queue that has room, or to a new one, and returns the batch.
func (b *batches[A, R]) join(item *BatchItem[A, R]) *batch[A, R] {
	host := item.request.host
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.waiting[host]
	if c == nil {
		wait, begin := context.WithTimeout(context.Background(), b.o.Wait)
		c = &batch[A, R]{host: host, begin: begin, done: make(chan struct{})}
		b.waiting[host] = c
		go func() {
			defer begin()
			host.AwaitLast(wait)
			b.start(c)
		}()
	}
	c.items = append(c.items, item)
	host.AddWaiting(1) // after append: all workers may wait now
	if len(c.items) == b.o.Max {
		delete(b.waiting, host)
		c.begin()
	}
	return c
}

// leave takes item out of c and returns true, or returns false if the call of c has begun with
// item.
func (b *batches[A, R]) leave(c *batch[A, R], item *BatchItem[A, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.called {
		return !item.called
	}
	for i := range c.items {
		if c.items[i] == item {
			c.items = append(c.items[:i], c.items[i+1:]...)
			c.host.AddWaiting(-1)
			break
		}
	}
	if len(c.items) == 0 {
		if b.waiting[c.host] == c {
			delete(b.waiting, c.host)
		}
		c.begin()
	}
	return true
}

// start begins the call of c with the tasks whose contexts have not ended, and returns after the
// call.
func (b *batches[A, R]) start(c *batch[A, R]) {
	b.mu.Lock()
	if b.waiting[c.host] == c {
		delete(b.waiting, c.host)
	}
	c.called = true
	c.host.AddWaiting(-len(c.items))
	rest := c.items[:0]
	for _, item := range c.items {
		if item.called = item.ctx.Err() == nil; item.called {
			rest = append(rest, item)
		}
	}
	c.items = rest
	b.mu.Unlock()
	if len(rest) == 0 {
		close(c.done)
		return
	}
	c.call(b.fn)
}

// call calls fn with the tasks of c, stores its error and closes c.done, also if fn ends its
// goroutine. Without a host it does not recover a panic of fn.
func (c *batch[A, R]) call(fn func(ctx context.Context, batch []*BatchItem[A, R]) error) {
	defer close(c.done)
	c.err = fmt.Errorf("%w: the batch handler ended its goroutine", ErrPanic)
	do := func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var mu sync.Mutex
		left := len(c.items)
		for _, item := range c.items {
			defer context.AfterFunc(item.ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				if left--; left == 0 {
					cancel(context.Cause(item.ctx))
				}
			})()
		}
		return fn(ctx, c.items)
	}
	if c.host == nil { // one task, whose end ends the call
		c.err = do(context.WithoutCancel(c.items[0].ctx))
		return
	}
	c.err = c.host.Call(do)
}

// outcome returns the result and the error of the task after a call that ended with the error
// failed. It calls methods of failed, which may panic.
func (i *BatchItem[A, R]) outcome(failed error) (any, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.err != nil:
		return nil, i.err
	case failed != nil:
		return nil, i.request.retryOr(failed)
	case !i.set:
		return nil, i.request.retryOr(ErrNoVerdict)
	}
	return i.result, nil
}

// retryOr returns err as a retry. It returns err unchanged in three cases: err has a verdict, the
// retry policy of the task retries it, or the task runs at most once.
func (r *Request) retryOr(err error) error {
	if VerdictOf(err) != nil || !r.Effective.Idempotent.Or(true) || r.Outcome(err).State != StateFailed {
		return err
	}
	return Retry(err)
}

// BatchRegistrar is a Registrar that knows how many tasks its queues run at once. Consumers
// implement it.
type BatchRegistrar interface {
	Registrar
	// CheckBatch returns an error if most tasks of this name can never run at once. queue is the
	// queue of the task's definition, or "". HandleBatch calls it before Register.
	CheckBatch(name, queue string, most int) error
}

// BatchHost is a queue of a consumer as the batches of its tasks see it. Consumers give one to each
// Request, see [Request.BatchIn]. Hosts are comparable, and equal for the same queue. Safe for
// concurrent use.
type BatchHost interface {
	// AddWaiting adds n to the number of workers that wait in batches; n may be negative. It does not
	// block.
	AddWaiting(n int)
	// AwaitLast blocks until no further task of the queue can join a batch, or ctx ends. That is so
	// when all workers wait in batches, the queue is paused, the consumer stops, or a task waits for
	// its quarantine.
	AwaitLast(ctx context.Context)
	// Call calls fn and returns its error. A panic of fn becomes a [*PanicError]. The context of fn
	// has the values of the consumer's Run, and ends at a hard stop at the latest.
	Call(fn func(ctx context.Context) error) error
}

// BatchIn sets the queue in which the task may join a batch. Consumers call it before the
// middleware.
func (r *Request) BatchIn(h BatchHost) { r.host = h }
