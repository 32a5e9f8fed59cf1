// Package bursting handles the messages of bursts for a consumer ([task.Burst]). Package
// internal/bursts has the rules.
package bursting

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/bursts"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Config holds the settings for all tasks of a consumer.
type Config struct {
	Store  *bursts.Store // nil: tasks of bursts fail
	Codec  *wire.Codec
	Broker broker.Broker
	// Sent is called after each confirmed publish of a task that has waited for another one.
	Sent func(queue string, e *task.Envelope)
}

// StoreOf returns the store of bursts: explicit, or the result store s if it can keep them, or nil.
func StoreOf(explicit resultstore.Swapper, s resultstore.ResultStore) *bursts.Store {
	return bursts.New(resultstore.SwapperOf(explicit, s))
}

var errNoStore = fmt.Errorf("%w: the task is in a burst, and this consumer has no store of bursts: use a result store in memory, Redis, NATS or SQL, or set Config.Bursts", broker.ErrUnsupported)

// ErrSuperseded is the error of a task whose submission was never confirmed, while a newer one has
// its key.
var ErrSuperseded = fmt.Errorf("%w: a newer submission of its burst has replaced it", task.ErrRevoked)

// attempt returns the attempt of r. Returns an error if r has no readable burst or no store.
func (c *Config) attempt(r *task.Request) (bursts.Attempt, error) {
	if c.Store == nil || r.Burst == "" {
		return bursts.Attempt{}, errNoStore
	}
	m, err := bursts.ReadMark(r.Burst)
	return bursts.Attempt{ID: r.ID, Name: r.Name, Mark: m, Life: r.Life}, err
}

// Decision is the next step of the consumer with a message. The zero value says that the task was
// given back.
type Decision struct {
	Start bool // start or settle the task
	// Alone is set with Start if the record of the burst does not know the task. The task starts
	// only if its end is not recorded.
	Alone bool
	Drop  bool  // acknowledge the message: another one has the task
	Err   error // the task fails; [ErrSuperseded]: it is revoked
	// Next replaces the message after Delay.
	Next  *Message
	Delay time.Duration
}

// Message is the next message of a burst.
type Message struct {
	*steps.Next
	// Format and Arrived belong to the submission that the message has; Format is nil if the
	// message has the arguments of the received one.
	Format  serializer.Format
	Arrived *wire.Value
}

// Take decides what to do with the message of r. It blocks while it asks the store, as long as a
// step of run may take. A task that is not in a burst starts.
func (c *Config) Take(run workflow.Run, r *task.Request) (d Decision) {
	if r.Burst == "" {
		return Decision{Start: true}
	}
	a, err := c.attempt(r)
	if err != nil {
		return Decision{Err: err}
	}
	var t bursts.Taken
	if !run.Step("burst", func(ctx context.Context) (err error) {
		t, err = c.Store.Take(ctx, a)
		return err
	}) {
		return d
	}
	switch t.Step {
	case bursts.Start:
		return Decision{Start: true, Alone: t.Alone}
	case bursts.Superseded:
		return Decision{Err: ErrSuperseded}
	case bursts.Drop:
		return Decision{Drop: !t.Ended || c.End(run, r)}
	}
	m, err := c.next(r, t)
	if err != nil {
		return Decision{Err: err}
	}
	// Not started, and of two messages one is dropped: so publish before the acknowledgement.
	meta := *r.Effective
	meta.Idempotent = task.Set(true)
	r.Effective = &meta
	return Decision{Next: m, Delay: t.Delay}
}

// Try is Take, but it tries each step once, and all within limit and until ctx ends. Returns false
// if a step has failed: then call Take.
func (c *Config) Try(ctx context.Context, limit time.Duration, run workflow.Run, r *task.Request) (Decision, bool) {
	if r.Burst == "" {
		return Decision{Start: true}, true
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	first := &firstTry{Run: run, ctx: ctx}
	d := c.Take(first, r)
	return d, !first.failed
}

// firstTry is a Run whose steps are not repeated.
type firstTry struct {
	workflow.Run
	ctx    context.Context
	failed bool
}

// Step implements [workflow.Run].
func (t *firstTry) Step(_ string, do func(context.Context) error) bool {
	t.failed = do(t.ctx) != nil
	return !t.failed
}

// Save implements [workflow.Run]: it fails, since it would block for long.
func (t *firstTry) Save(task.ID, string, *task.Envelope, *task.Metadata, resultstore.Record) bool {
	t.failed = true
	return false
}

// next returns the message that replaces that of r, as t demands. It has the id and the reply
// address of r. Returns an error if the stored submission cannot be read.
func (c *Config) next(r *task.Request, t bursts.Taken) (*Message, error) {
	m := &Message{Next: steps.NextOf(r.Envelope)}
	if t.Data != nil {
		e, _, err := c.open(r, t.Mark.Key, t.Data, m)
		if err != nil {
			return nil, err
		}
		e.ID, e.Root, e.ReplyTo, e.Life = r.ID, r.Root, r.ReplyTo, r.Life
		m.Next = steps.NextOf(e)
	}
	m.Burst = t.Mark.String()
	return m, nil
}

// open reads a stored submission for the key of the burst of r, and sets Format and Arrived of m.
// It returns the envelope, and the message as it was stored.
func (c *Config) open(r *task.Request, key string, data []byte, m *Message) (*task.Envelope, *broker.Outgoing, error) {
	queue, message, err := wire.ReadPrepared(data)
	if err != nil {
		return nil, nil, err
	}
	e, f, err := c.Codec.Decode(message)
	if err != nil {
		return nil, nil, err
	}
	if m.Arrived, err = c.Codec.OpenArrived(queue, e); err != nil {
		return nil, nil, err
	}
	m.Format = f
	if mark, err := bursts.ReadMark(e.Burst); err != nil || mark.Key != key || e.Name != r.Name {
		return nil, nil, fmt.Errorf("%w: the stored submission belongs to another burst", serializer.ErrMalformed)
	}
	return e, &broker.Outgoing{Queue: queue, Message: message}, nil
}

// End ends the burst of the task of r, which has ended, and publishes the submission that waits for
// it. run settles the task. Returns false if a step gave up. Without a burst that blocks others it
// does nothing.
func (c *Config) End(run workflow.Run, r *task.Request) bool {
	a, err := c.attempt(r)
	if err != nil || !a.Mark.Latest {
		return true
	}
	var next *bursts.Next
	if !run.Step("end of its burst", func(ctx context.Context) (err error) {
		next, err = c.Store.Finish(ctx, a)
		return err
	}) {
		return false
	}
	if next == nil {
		return true
	}
	e, out, unfit := c.follow(r, next)
	if unfit == nil && !run.Step("next task of its burst", func(ctx context.Context) error {
		err := c.Broker.Publish(ctx, out.Queue, out.Message)
		if workflow.Permanent(err) {
			unfit, err = err, nil
		}
		return err
	}) {
		return false
	}
	if unfit == nil {
		c.Sent(out.Queue, e)
	} else if !c.lose(run, r, next, unfit) {
		return false
	}
	return run.Step("burst", func(ctx context.Context) error { return c.Store.Followed(ctx, a, next) })
}

// follow returns the task that has waited for the end of r, and its message.
func (c *Config) follow(r *task.Request, next *bursts.Next) (*task.Envelope, *broker.Outgoing, error) {
	var m Message
	e, out, err := c.open(r, next.Mark.Key, next.Data, &m)
	if err != nil {
		return nil, nil, err
	}
	e.ID, e.Burst = next.ID, next.Mark.String()
	stored := out.Message
	if out.Message, err = c.Codec.EncodeAs(m.Format, out.Queue, e, m.Arrived); err != nil {
		return nil, nil, err
	}
	out.Message.Priority, out.Message.Key, out.Message.Weight, out.Message.Expires = stored.Priority, stored.Key, stored.Weight, stored.Expires
	steps.CopyForeign(out.Message, stored)
	return e, out, nil
}

// lose records that the task that has waited for the end of r cannot be sent because of cause.
// Returns false if a step gave up.
func (c *Config) lose(run workflow.Run, r *task.Request, next *bursts.Next, cause error) bool {
	run.Log(slog.LevelError, "the next task of a burst cannot be sent; it fails", slog.String("next", string(next.ID)), slog.Any("error", cause))
	return run.Save(next.ID, r.Name, r.Envelope, &r.Meta, resultstore.Record{
		State: task.StateFailed, Deliveries: 1, Error: task.Remote(fmt.Errorf("swarmiji: the next task of a burst cannot be sent: %w", cause)), FinishedAt: time.Now(),
	})
}

// Hold keeps the key of the task of r while the task runs without a message in the broker. Call it
// before the acknowledgement, and Renew while the handler runs. Returns false if the step gave up.
func (c *Config) Hold(run workflow.Run, r *task.Request) bool {
	a, err := c.attempt(r)
	return err != nil || !a.Mark.Latest || run.Step("burst", func(ctx context.Context) error { return c.Store.Keep(ctx, a) })
}

// Renew extends the effect of Hold until the returned function is called or ctx ends. It does
// nothing for other tasks than those of Hold.
func (c *Config) Renew(ctx context.Context, r *task.Request) (stop func()) {
	a, err := c.attempt(r)
	if err != nil || !a.Mark.Latest {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wake.Sleep(ctx, bursts.LeaseTime/4) {
			try, cancel := context.WithTimeout(ctx, bursts.LeaseTime/4)
			_ = c.Store.Keep(try, a) // an error is repeated before the lease ends
			cancel()
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
