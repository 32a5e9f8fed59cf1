package producer

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// connectWait limits how long the first SubmitTx waits for queues and for the streams of results.
// On SQLite the transaction of the caller may hold the lock for which their tables wait.
const connectWait = 2 * time.Second

var (
	// errNoTx refuses SubmitTx if neither an outbox nor the broker can store tasks in a transaction.
	errNoTx = fmt.Errorf("%w: this broker cannot store tasks in a transaction of the caller: use PostgreSQL or SQLite as the broker, in the database of the transaction, or set Config.Outbox", broker.ErrUnsupported)
	// errNoJobsTx refuses conditions if the jobs cannot be stored in a transaction.
	errNoJobsTx = fmt.Errorf("%w: Config.Jobs cannot store a task with conditions in a transaction of the caller: use a jobs.Service over the database of the transaction, or Submit", broker.ErrUnsupported)
	// errUniqueTx refuses unique keys: a claim would stay taken after a rollback.
	errUniqueTx = fmt.Errorf("%w: task.WithUnique claims its key outside of the transaction and would keep it after a rollback: use task.WithID, or a unique key in a table of yours", broker.ErrUnsupported)
	// errMostOnceTx refuses tasks that must not be sent again.
	errMostOnceTx = fmt.Errorf("%w: a relay of an outbox sends a task again after a lost answer, so it cannot run at most once: submit it in the handler of a task of the outbox", broker.ErrUnsupported)
	// errStreamTx refuses streams: the transaction would be open as long as the inputs last.
	errStreamTx = fmt.Errorf("%w: a stream sends its inputs in batches and would keep the transaction open: submit one task in the transaction, whose handler calls task.Stream", broker.ErrUnsupported)
)

// JobTxCreator is a [JobCreator] that can store tasks in a transaction of the caller.
type JobTxCreator interface {
	// CreateForTaskTx is CreateForTasks for one task in a transaction of the caller. The job exists if
	// and only if the caller commits. A task that is stored already is a success.
	//
	// Returns [broker.ErrUnsupported] for a transaction of another database and for conditions that
	// cannot hold in it. Returns [task.ErrBadMetadata] if the task cannot be stored, and a
	// [*task.TakenError].
	// After these errors nothing was written, and t can continue and commit.
	CreateForTaskTx(ctx context.Context, t tx.Tx, c task.Conditioned) error
}

// Connect declares the queues of the Router and of Config.Queues, and opens the streams of results.
// A program that calls [Producer.SubmitTx] on SQLite calls Connect at its start, since a
// transaction keeps all others from writing to the file. It may be called repeatedly.
//
// Returns [ErrClosed] after Close, and an error that wraps [broker.ErrUnavailable] if the broker or
// a result store cannot be used before ctx, or Timeout, ends.
func (p *Producer) Connect(ctx context.Context) error {
	if err := p.begin(); err != nil {
		return err
	}
	defer p.inFlight.Done()
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	return p.connect(ctx, true)
}

// connect declares the queues if declare is true, and opens the streams of results. It blocks
// within ctx. A part that has succeeded is not done again. Returns the errors of declareQueues and
// of listening.
func (p *Producer) connect(ctx context.Context, declare bool) error {
	if declare {
		if err := p.declareQueues(ctx); err != nil {
			return err
		}
	}
	if p.connected.Load() {
		return nil
	}
	for _, in := range p.inbox {
		if _, err := in.listening(ctx); err != nil {
			return err
		}
	}
	p.connected.Store(true)
	return nil
}

// SubmitTx submits one task in a transaction of the caller: the task exists if and only if the
// caller commits. It neither commits nor rolls back. The task is stored by Config.Outbox if that is
// set, else by the broker if that is a [broker.TxPublisher] on the same database.
//
// A task with conditions becomes a job in the transaction, if Config.Jobs is a [JobTxCreator] on
// its database. Middleware and hooks are called as for Submit. The outcome that they learn is that
// the task is stored, not that the transaction is committed. So the task is not counted as Sent,
// and no task-sent event is sent.
//
// The producer does not see the end of the transaction. The returned handle waits for the result of
// the task as usual, with two differences:
//
//   - Until the store of results has a record of the task, State returns [task.ErrNotFound] at
//     once, and Result wraps [task.ErrNotFound] if its ctx ends.
//   - After a rollback Done is never closed. The handle costs nothing when the program drops it.
//     But a handle whose Done was called stays until the task ends or the producer is closed.
//
// Besides the errors of Submit it returns [broker.ErrUnsupported] if the task cannot be stored in
// t:
//
//   - neither the outbox nor the broker can do it, or t belongs to another database
//   - the task has a unique key ([task.WithUnique]) or a burst ([task.Burst])
//   - the task runs at most once, and Config.Outbox is set
//   - the conditions cannot hold in it
//
// After an error of Submit or [broker.ErrUnsupported] nothing was stored, and t can continue and
// commit. An error of the database may have ended t. Config.Timeout does not limit the statements
// in t.
//
// The first call waits at most 2 seconds for the queues and the streams of results, and returns
// [broker.ErrUnavailable] after that; see [Producer.Connect]. With Config.Outbox it needs neither
// and waits for no server but the outbox's.
func (p *Producer) SubmitTx(ctx context.Context, t tx.Tx, c task.Call) (task.Pending, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	if c.Unique != nil {
		return nil, submitError(c.Name, errUniqueTx)
	}
	if c.Burst != nil {
		return nil, submitError(c.Name, errBurstTx)
	}
	out, err := p.beforeTx(ctx, c.Conditions != nil)
	if err != nil {
		return nil, submitError(c.Name, err)
	}
	s := p.newStaged()
	defer p.recycle(s)
	s.inTx = true
	if err := p.prepareTx(ctx, &c, s); err != nil {
		return nil, err
	}
	if s.conditioned != nil {
		err = p.keepTx(ctx, t, s)
	} else {
		err = out.PublishTx(ctx, t, []broker.Outgoing{s.out})
	}
	if err != nil {
		s.withdraw(err)
		return nil, submitError(s.envelope.Name+" "+string(s.envelope.ID), err)
	}
	s.notifyEnd(nil)
	return inTransaction(s.pending), nil
}

// checkMostOnce returns an error for a task that runs at most once and would be stored in
// Config.Outbox.
func (s *staged) checkMostOnce() error {
	if s.inTx && s.conditions == nil && s.producer.cfg.Outbox != nil && !s.effective.Idempotent.Or(true) {
		return errMostOnceTx
	}
	return nil
}

// prepareTx is prepare within the default timeout.
func (p *Producer) prepareTx(ctx context.Context, c *task.Call, s *staged) error {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	return p.prepare(ctx, c, s)
}

// beforeTx returns the port that stores tasks in transactions: Config.Outbox, or else the broker,
// after connect. For a task with conditions (conditions is true) the port is not needed and may be
// nil. For another task it returns [broker.ErrUnsupported] if there is no such port. Also returns
// the errors of connect.
func (p *Producer) beforeTx(ctx context.Context, conditions bool) (broker.TxPublisher, error) {
	if p.cfg.Outbox != nil {
		return p.cfg.Outbox, nil
	}
	out, _ := capability.As[broker.TxPublisher](p.cfg.Broker)
	if out == nil && !conditions {
		return nil, errNoTx
	}
	short, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	// Conditions need no queue here: the runner of the job declares it.
	err := p.connect(short, !conditions)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		err = fmt.Errorf("%w; call Producer.Connect before the transaction begins, which on SQLite keeps others from writing", err)
	}
	return out, err
}

// keepTx stores a task with conditions in Config.Jobs, in the transaction t. Returns
// [broker.ErrUnsupported] if the jobs are not a [JobTxCreator], and their errors.
func (p *Producer) keepTx(ctx context.Context, t tx.Tx, s *staged) error {
	jobs, ok := capability.As[JobTxCreator](p.cfg.Jobs)
	if !ok {
		return errNoJobsTx
	}
	return jobs.CreateForTaskTx(ctx, t, *s.conditioned)
}

// SubmitWorkTx submits a workflow in a transaction of the caller, as [Producer.SubmitTx] submits a
// task: the first steps are stored in t, all or none. The later steps travel in their messages. It
// returns the handles of SubmitWork, which behave like that of SubmitTx. It implements
// [task.TxWorkSubmitter]; the method SubmitTx of [task.Step] calls it.
//
// Its errors are those of SubmitTx and SubmitWork. It refuses streams with [broker.ErrUnsupported].
func (p *Producer) SubmitWorkTx(ctx context.Context, t tx.Tx, w task.Work) ([]task.Pending, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.inFlight.Done()
	if w.Stream != nil {
		return nil, fmt.Errorf("swarmiji: submit workflow: %w", errStreamTx)
	}
	out, err := p.beforeTx(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("swarmiji: submit workflow: %w", err)
	}
	b := &builder{ctx: ctx, p: p, work: &w, store: func(ms []broker.Outgoing) error { return out.PublishTx(ctx, t, ms) }}
	pending, err := b.submit()
	for i := range pending {
		pending[i] = inTransaction(pending[i])
	}
	return pending, err
}

// storeTx stores the first steps in the transaction of the workflow (b.store), all or none, and
// returns its error. Middleware learns the outcome.
func (b *builder) storeTx(first []*staged) error {
	outs := make([]broker.Outgoing, len(first))
	for i, s := range first {
		outs[i] = s.out
	}
	err := b.store(outs)
	b.notifyEnd(first, err)
	return err
}

// uncommitted is the handle of a task that was submitted in a transaction of the caller. When the
// program drops it, its waiter is released: after a rollback nothing else would do that.
type uncommitted struct{ *waiter }

// inTransaction returns an uncommitted handle if pending is a waiter. When the program drops that
// handle, the waiter is released. It returns any other handle as it is.
func inTransaction(pending task.Pending) task.Pending {
	w, ok := pending.(*waiter)
	if !ok {
		return pending
	}
	h := &uncommitted{w}
	runtime.AddCleanup(h, func(w *waiter) { w.inbox.release(w) }, w)
	return h
}

// Done implements [task.Pending]. The waiter then keeps the handle, since the program may wait for
// the channel alone. It takes the lock of the inbox.
func (h *uncommitted) Done() <-chan struct{} {
	h.inbox.mu.Lock()
	defer h.inbox.mu.Unlock()
	h.handle = h
	return h.waiter.Done()
}

// Result implements [task.Pending], see [waiter.Result]. It keeps h, and so the waiter, until it
// returns.
func (h *uncommitted) Result(ctx context.Context, v any) error {
	defer runtime.KeepAlive(h)
	return h.waiter.Result(ctx, v)
}

// errUncommitted returns the error about a task of SubmitTx without a record. It wraps that of
// errNoRecord.
func errUncommitted() error {
	return fmt.Errorf("its transaction has not committed or was rolled back, no consumer has recorded the task, or its result came before this process had its reply queue: %w", errNoRecord())
}

// submission is the knowledge of a producer about the submission of a task.
type submission uint8

const (
	elsewhere     submission = iota // another producer may have submitted it
	transactional                   // it is in a transaction whose end the producer does not see
	sent                            // this producer has sent it, or is about to
)

var (
	_ task.TxSubmitter     = (*Producer)(nil)
	_ task.TxWorkSubmitter = (*Producer)(nil)
)
