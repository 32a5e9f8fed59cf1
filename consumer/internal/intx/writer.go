package intx

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// End is the end of a task that a transaction stores, with the calls that must wait for the commit.
type End struct {
	Value wire.Value // the result
	// Saved are the records for submitters. Their stores have sent no notification.
	Saved    []Saved
	outcomes []func(error) // hooks of the sent tasks
	sent     []func()
}

// Saved is a record and its store.
type Saved struct {
	Store  resultstore.ResultStore
	Record resultstore.Record
}

// Committed tells the enqueue hooks that the tasks were sent, and calls Sent of the senders for
// each. Call it after the commit.
func (e *End) Committed() {
	for _, outcome := range e.outcomes {
		outcome(nil)
	}
	for _, sent := range e.sent {
		sent()
	}
}

// RolledBack tells the enqueue hooks that the tasks were not sent. Call it if the transaction was
// rolled back, or no commit of it was seen.
func (e *End) RolledBack() {
	for _, outcome := range e.outcomes {
		outcome(workflow.ErrNotSent)
	}
}

// Writer writes the end of one task in the transaction T. Only one goroutine may use it.
type Writer struct {
	T tx.Tx
	End
}

// Save stores a record in the transaction. It does not notify the submitter; the caller does that
// after the commit, by Saved. Returns [broker.ErrUnsupported] if the store is not in the database
// of the transaction, and errors of the store.
func (w *Writer) Save(ctx context.Context, store resultstore.ResultStore, rec resultstore.Record) error {
	saver, ok := capability.As[resultstore.TxSaver](store)
	if !ok {
		return fmt.Errorf("%w: SettleTx: a result store is in no SQL database", broker.ErrUnsupported)
	}
	err := saver.SaveTx(ctx, w.T, rec)
	if err == nil && rec.ReplyTo != "" && rec.State.Terminal() {
		w.Saved = append(w.Saved, Saved{store, rec})
	}
	if errors.Is(err, resultstore.ErrUnsupported) {
		err = unsupported("result store", err)
	}
	return err
}

// Workflow returns a copy of c whose senders publish and gather in the transaction. Hooks and Sent
// learn the outcome from Committed or RolledBack.
func (w *Writer) Workflow(c *workflow.Config) *workflow.Config {
	in := *c
	in.Broker = publisher{c.Broker, w.T}
	if g, ok := capability.As[resultstore.TxGatherer](c.Gatherer); ok {
		in.Gatherer = gatherer{c.Gatherer, g, w.T}
	}
	in.BeforeEnqueue = func(queue string, e *task.Envelope) (func(error), error) {
		after, veto := c.BeforeEnqueue(queue, e)
		return func(err error) {
			if err != nil {
				after(err)
				return
			}
			w.outcomes = append(w.outcomes, after)
		}, veto
	}
	in.Sent = func(queue string, e *task.Envelope) {
		w.sent = append(w.sent, func() { c.Sent(queue, e) })
	}
	return &in
}

// publisher is a Broker that publishes in a transaction.
type publisher struct {
	broker.Broker
	t tx.Tx
}

// Unwrap returns the Broker, for [capability.As].
func (p publisher) Unwrap() any { return p.Broker }

// PublishBatch implements [broker.BatchPublisher] in the transaction. A message that the Broker
// refuses does not prevent the others: the error is then a [broker.BatchError].
func (p publisher) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	b, ok := capability.As[broker.TxPublisher](p.Broker)
	if !ok {
		return fmt.Errorf("%w: SettleTx: the broker cannot send tasks in a transaction", broker.ErrUnsupported)
	}
	err := b.PublishTx(ctx, p.t, ms)
	if !workflow.Permanent(err) || len(ms) == 1 {
		return err
	}
	errs := make([]error, len(ms)) // nothing was stored
	for i := range ms {
		errs[i] = b.PublishTx(ctx, p.t, ms[i:i+1])
	}
	return &broker.BatchError{Errs: errs}
}

// gatherer is a Gatherer that writes in a transaction.
type gatherer struct {
	resultstore.Gatherer
	g resultstore.TxGatherer
	t tx.Tx
}

// Arrive implements [resultstore.Gatherer]: it reports the end of a member in the transaction.
func (g gatherer) Arrive(ctx context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	return g.g.ArriveTx(ctx, g.t, a)
}

// Members implements [resultstore.Gatherer]: it reads members in the transaction.
func (g gatherer) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	return g.g.MembersTx(ctx, g.t, group, from, limit)
}
