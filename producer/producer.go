// Package producer submits tasks: it merges their metadata, routes them, writes them, hands them to a broker and holds the
// futures of their results.
package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrClosed is returned by a producer that was closed, and by futures that were open when it was.
var ErrClosed = errors.New("swarmiji: producer closed")

// ErrNotSent is what Submit returns when a middleware neither staged the task nor gave a reason.
var ErrNotSent = errors.New("swarmiji: a middleware held the task back without an error")

// Producer submits tasks. It is safe for concurrent use. It starts goroutines with the first task where there is an event
// bus, or with the first whose result is wanted, and ends them in Close.
type Producer struct {
	cfg     Config
	codec   *wire.Codec
	send    middleware.Sender // the middleware around stage; nil when there is none
	levels  map[string][]int  // of the queues declared with priorities
	base    *task.Metadata    // cfg.Defaults where they set anything
	inbox   map[resultstore.ResultStore]*inbox
	report  *report.Reporter // nil without Config.Events
	sent    atomic.Int64     // tasks that were told of
	blanks  sync.Pool        // of *staged, all empty
	secrets sync.Map         // of a type of arguments: whether it has secrets; used where payloads are shown

	declaring chan struct{} // capacity 1: held while queues are declared, so that others can wait within their ctx
	declared  atomic.Bool

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
}

// New makes a producer, or returns every problem of the configuration, joined. It does no I/O.
func New(c Config) (*Producer, error) {
	codec, err := c.complete()
	if err != nil {
		return nil, err
	}
	p := &Producer{declaring: make(chan struct{}, 1), cfg: c, codec: codec, levels: make(map[string][]int), inbox: make(map[resultstore.ResultStore]*inbox)}
	for _, q := range c.Queues {
		p.levels[q.Name] = q.Levels
	}
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

// NodeID returns the name by which results find this producer.
func (p *Producer) NodeID() string { return p.cfg.Report.NodeID }

// Submit submits one task and returns when the broker has confirmed it. Its errors:
//   - [task.ErrBadName], [task.ErrBadMetadata], a serializer's error, [broker.ErrTooLarge]: refused before any I/O.
//   - [broker.ErrNoQueue]: the queue does not exist; only the Router's queues are declared by the producer.
//   - [broker.ErrUnavailable], [broker.ErrBlocked]: nothing was sent until ctx, or Timeout, ended.
//   - [broker.ErrIndeterminate]: it may or may not be queued; submitting it again with the same id ([task.WithID]) is safe. It
//     stays one task with one result; whether its handler may start again, see [task.WithID].
//   - [*UniqueError]: see [task.WithUnique].
//   - any error of a middleware, as it is.
//
// A task with conditions ([task.Conditions]) becomes a job of Config.Jobs: it is confirmed when that is on disk. It is sent later, by a runner of jobs; then its message is
// what it would have been. Further errors: [broker.ErrUnsupported] without Config.Jobs, and for what no job can be made of; [*task.TakenError].
func (p *Producer) Submit(ctx context.Context, c task.Call) (task.Pending, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	ctx, cancel := p.bound(ctx)
	defer cancel()
	if err := p.declareQueues(ctx); err != nil {
		return nil, err
	}
	s := p.blank()
	defer p.reuse(s)
	if err := p.prepare(ctx, &c, s); err != nil {
		return nil, err
	}
	if err := p.publish(ctx, s); err != nil {
		s.withdraw(err)
		return nil, fmt.Errorf("swarmiji: submit %s %s: %w", s.envelope.Name, s.envelope.ID, err)
	}
	if s.first != "" {
		return p.answered(s), nil
	}
	p.confirmed(s, time.Time{})
	return s.pending, nil
}

// publish submits one task.
func (p *Producer) publish(ctx context.Context, s *staged) error {
	if s.unique != nil {
		return p.publishUnique(ctx, []*staged{s})[0]
	}
	return p.publishOne(ctx, s)
}

// publishOne hands one task to the broker, or, if it has conditions, to its keeper.
func (p *Producer) publishOne(ctx context.Context, s *staged) error {
	if s.kept != nil {
		return p.keep(ctx, []*staged{s})[0]
	}
	return broker.PublishAt(ctx, p.cfg.Broker, s.out)
}

// enter refuses a closed producer and keeps Close waiting for the caller.
func (p *Producer) enter() error {
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

// bound gives ctx the default deadline if it has none.
func (p *Producer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || p.cfg.Timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.cfg.Timeout)
}

// Pending returns the handle of a task that this or another producer submitted, by its id. It asks the default result store.
//
//   - A store has no record of a task before it starts or is put back. [task.StatePending] is therefore only said of a task that
//     this producer has submitted and waits for; of any other one without a record State returns [task.ErrNotFound]: nobody
//     submitted it, it has not started yet, or its record has expired. Result waits for the record, and wraps
//     [task.ErrNotFound] when its context ends first.
//   - Reply queues keep no records. State returns [broker.ErrUnsupported] unless this producer has submitted the task and waits
//     for it. Done and Result wait for a record that is still to come to this producer, such as that of a successor of its own
//     task; Result wraps [broker.ErrUnsupported] when its context ends first.
//   - Without a store every answer is [task.ErrNoResult].
func (p *Producer) Pending(id task.ID) task.Pending {
	if err := id.Check(); err != nil {
		return &settled{id: id, err: err}
	}
	in, ok := p.inbox[p.cfg.Results]
	if !ok {
		return &settled{id: id, err: task.ErrNoResult}
	}
	return &observed{id: id, inbox: in, codec: p.codec}
}

// Close refuses new submissions, waits for those under way until ctx ends, and ends the futures that are still open with
// [ErrClosed]. It does not close broker, stores and bus. It is idempotent.
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
		errs = append(errs, fmt.Errorf("swarmiji: producer: submissions still under way: %w", context.Cause(ctx)))
	}
	for _, in := range p.inbox {
		errs = append(errs, in.close(ctx))
	}
	p.endReport(ctx)
	return errors.Join(errs...)
}

// declareQueues declares, before the first submission, the queues that the Router may name and those of Config.Queues, so
// that tasks can be queued before any consumer exists. After a failure the next submission tries again.
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

// now is the producer's clock, cut to what travels.
func now() time.Time { return time.Now().Truncate(time.Millisecond) }

var (
	_ task.Submitter      = (*Producer)(nil)
	_ task.BatchSubmitter = (*Producer)(nil)
)
