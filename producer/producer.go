// Package producer submits tasks to a broker and returns futures of their results.
//
// Make a producer with [New] and pass it to the Submit method of a [task.Task] or of a workflow.
// The producer merges the metadata of a task, selects its queue, encodes it and publishes it.
package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/bursts"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrClosed is returned by a closed producer and by the futures that its Close has ended.
var ErrClosed = errors.New("swarmiji: producer closed")

// ErrNotSent is returned by Submit if a middleware neither sent the task nor returned an error.
var ErrNotSent = errors.New("swarmiji: a middleware did not send the task and returned no error")

// Producer submits tasks. Safe for concurrent use. It starts goroutines with the first task if
// Config.Events is set, or with the first task whose result is kept, and ends them in Close.
type Producer struct {
	cfg     Config
	codec   *wire.Codec
	send    middleware.Sender // the middleware around stage; may be nil
	levels  map[string][]int  // priority levels of the declared queues
	base    *task.Metadata    // &cfg.Defaults; nil: they set nothing
	ids     *ids
	inbox   map[resultstore.ResultStore]*inbox
	bursts  *bursts.Store    // nil: not configured
	report  *report.Reporter // nil without Config.Events
	sent    atomic.Int64     // tasks with an event
	blanks  sync.Pool        // empty *staged values
	secrets sync.Map         // type of arguments -> whether it has secrets; for payloads in events

	// capacity 1: held while queues are declared; other submissions wait within their ctx
	declaring chan struct{}
	declared  atomic.Bool
	connected atomic.Bool // the streams of results were open

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
}

// New returns a producer for c, whose defaults it sets. It does no I/O and starts no goroutine.
// Returns all problems of the configuration as one joined error.
func New(c Config) (*Producer, error) {
	codec, err := c.complete()
	if err != nil {
		return nil, err
	}
	p := &Producer{declaring: make(chan struct{}, 1), cfg: c, codec: codec, ids: newIDs(), levels: make(map[string][]int), inbox: make(map[resultstore.ResultStore]*inbox)}
	for _, q := range c.Queues {
		p.levels[q.Name] = q.Levels
	}
	p.bursts = bursts.New(resultstore.SwapperOf(c.Bursts, c.Results))
	if !c.Defaults.IsZero() {
		p.base = &p.cfg.Defaults
	}
	sends := c.Middleware
	if hooks := c.Hooks.SendMiddleware(c.Logger); hooks != nil {
		sends = append([]middleware.SendMiddleware{hooks}, sends...)
	}
	if len(sends) > 0 {
		p.send = middleware.ChainSend(stageFromContext, sends...)
	}
	for _, s := range c.Stores {
		p.inbox[s] = newInbox(p, s)
	}
	if c.Results != nil {
		p.inbox[c.Results] = newInbox(p, c.Results)
	}
	p.report = p.newReport()
	return p, nil
}

// NodeID returns the name of this producer, to which results are sent.
func (p *Producer) NodeID() string { return p.cfg.Report.NodeID }

// Submit submits one task and returns when the broker has confirmed it. If an earlier task has its
// unique key, it returns the handle of that one and sends nothing. A task with a burst
// ([task.Burst]) returns the handle of the burst. Its errors:
//
//   - [ErrClosed] after Close.
//   - [task.ErrBadName], [task.ErrBadMetadata], an error of a serializer, [broker.ErrTooLarge]:
//     refused before the task is sent.
//   - [broker.ErrNoQueue]: the queue does not exist. The producer declares only the queues of its
//     Router and of Config.Queues.
//   - [broker.ErrUnavailable], [broker.ErrBlocked]: nothing was sent before ctx, or Timeout, ended.
//   - [broker.ErrIndeterminate]: the task may be queued or not. A second submission with the same
//     id ([task.WithID]) is safe: it is one task with one result. [task.WithID] says when its
//     handler may start again.
//   - [*UniqueError]: see [task.WithUnique].
//   - [broker.ErrUnsupported]: a burst without a store of bursts, or with options that have no
//     meaning for it.
//   - any error of a middleware, unchanged.
//
// A task with conditions ([task.Conditions]) becomes a job of Config.Jobs; it is confirmed when the
// job is stored. A runner of jobs sends it later as the same message. Further errors:
// [broker.ErrUnsupported] without Config.Jobs and for a task that cannot become a job;
// [*task.TakenError].
func (p *Producer) Submit(ctx context.Context, c task.Call) (task.Pending, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	if err := p.declareQueues(ctx); err != nil {
		return nil, err
	}
	s := p.newStaged()
	defer p.recycle(s)
	if err := p.prepare(ctx, &c, s); err != nil {
		return nil, err
	}
	if err := p.publish(ctx, s); err != nil {
		s.withdraw(err)
		return nil, submitError(s.envelope.Name+" "+string(s.envelope.ID), err)
	}
	if s.first != "" {
		return p.duplicateOf(s), nil
	}
	p.confirmed(s, time.Time{})
	return s.pending, nil
}

// publish submits one prepared task and blocks until it is confirmed or has failed. For a task with
// a unique key it claims the key first; if an earlier submission has it, it sets s.first and
// returns nil without sending. It does the same for a task that joins a burst.
func (p *Producer) publish(ctx context.Context, s *staged) error {
	if s.burst != nil {
		return p.publishBurst(ctx, s)
	}
	if s.unique != nil {
		return p.publishUnique(ctx, []*staged{s})[0]
	}
	return p.publishOne(ctx, s)
}

// publishOne publishes one task and waits for its confirm, or stores it in Config.Jobs if it has
// conditions. It returns the error of the broker or the jobs.
func (p *Producer) publishOne(ctx context.Context, s *staged) error {
	if s.conditioned != nil {
		return p.keep(ctx, []*staged{s})[0]
	}
	return broker.PublishAt(ctx, p.cfg.Broker, s.out)
}

// begin counts a submission, so that Close waits for it, and starts the report with the first one.
// After nil, call p.inFlight.Done at the end. Returns [ErrClosed] after Close. It takes p.mu.
func (p *Producer) begin() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.inFlight.Add(1)
	p.mu.Unlock()
	p.report.Start()
	return nil
}

// withTimeout returns ctx with the default timeout if ctx has no deadline. A negative
// Config.Timeout adds none. Call the returned function to release the context.
func (p *Producer) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || p.cfg.Timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.cfg.Timeout)
}

// Pending returns the handle of a task of this or another producer by its id. It does no I/O. The
// handle asks the default result store.
//
//   - A store has no record of a task before its start or its first retry. State returns
//     [task.StatePending] for a task without a record only if this producer has submitted it and
//     waits for it. For any other one it returns [task.ErrNotFound]: the task was never submitted,
//     has not started yet, or its record has expired. Result waits for the record, and wraps
//     [task.ErrNotFound] if its context ends first.
//   - Reply queues keep no records. State returns [broker.ErrUnsupported], unless this producer has
//     submitted the task and waits for it. Done and Result wait for a record that is sent to this
//     producer, such as that of a successor of its own task. Result wraps [broker.ErrUnsupported]
//     if its context ends first.
//   - Without a store Result and State return [task.ErrNoResult]. For an invalid id they return
//     [task.ErrBadID]. Done is closed in both cases.
func (p *Producer) Pending(id task.ID) task.Pending {
	if err := id.Check(); err != nil {
		return &resolved{id: id, err: err}
	}
	in, ok := p.inbox[p.cfg.Results]
	if !ok {
		return &resolved{id: id, err: task.ErrNoResult}
	}
	return &observed{id: id, inbox: in, codec: p.codec}
}

// Close refuses new submissions, waits for running ones until ctx ends, and ends open futures with
// [ErrClosed]. It then sends its last event. It does not close the broker, stores and bus. It may
// be called repeatedly. Returns an error if ctx ends before the submissions or the goroutines of
// results have ended.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.inFlight.Wait()
		close(done)
	}()
	var errs []error
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("swarmiji: producer: submissions have not ended: %w", context.Cause(ctx)))
	}
	for _, in := range p.inbox {
		errs = append(errs, in.close(ctx))
	}
	p.report.Stop(ctx)
	return errors.Join(errs...)
}

// declareQueues declares the queues of the Router and of Config.Queues before the first submission,
// so that tasks can be queued before a consumer exists. After a success it does nothing. After an
// error, which it returns, the next submission tries again. Only one goroutine declares at a time;
// the others wait within ctx and return [broker.ErrUnavailable] if that ends.
func (p *Producer) declareQueues(ctx context.Context) error {
	if p.declared.Load() {
		return nil
	}
	select {
	case p.declaring <- struct{}{}:
		defer func() { <-p.declaring }()
	case <-ctx.Done():
		return fmt.Errorf("swarmiji: declare queues: %w: %w", broker.ErrUnavailable, context.Cause(ctx))
	}
	if p.declared.Load() {
		return nil
	}
	qs := append([]broker.Queue(nil), p.cfg.Queues...)
	for _, name := range p.cfg.Router.Queues() {
		if _, listed := p.levels[name]; !listed {
			qs = append(qs, broker.Queue{Name: name})
		}
	}
	if err := broker.Declare(ctx, p.cfg.Broker, qs...); err != nil {
		return fmt.Errorf("swarmiji: declare queues: %w", err)
	}
	p.declared.Store(true)
	return nil
}

// now returns the current time, truncated to the milliseconds that messages carry.
func now() time.Time { return time.Now().Truncate(time.Millisecond) }

var (
	_ task.Submitter      = (*Producer)(nil)
	_ task.BatchSubmitter = (*Producer)(nil)
)
