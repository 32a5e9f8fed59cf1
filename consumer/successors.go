package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// publishSuccessors submits the tasks that follow this one, or its group, and reports whether to go on. Their ids were
// chosen at submission or are derived from the parent's, so that a repeat after a crash sends the same messages again.
func (r *run) publishSuccessors(v verdict) bool {
	if !wire.Followed(r.request.Envelope) {
		return true
	}
	f := &following{run: r, at: r.ended}
	if f.at.IsZero() {
		f.at = time.Now()
	}
	end := ending{given: wire.Given{Value: wire.Value{ContentType: v.contentType, Data: v.result}}}
	if v.kind != succeeded {
		end = ending{cause: task.Remote(v.err), state: v.kind.state()}
	}
	e := *r.request.Envelope
	e.Headers = r.request.SuccessorHeaders()
	f.ended(&e, end)
	f.flush()
	return !f.stopped
}

// How many successors are handed to the broker at a time, and of what size together: each carries a copy of what follows it.
const (
	publishAtOnce = 500
	publishBytes  = 4 << 20
)

// following sends what follows a task. What cannot be sent counts as a task that has failed, and what follows that one is
// dealt with likewise, so that nobody waits for ever.
type following struct {
	*run
	at      time.Time
	outs    []outgoing
	stopped bool // a step could not be carried out: the task comes again
}

// step is persist with a time of its own. There may be very many successors, and a group's results be very many: however long
// all of it takes, it is not begun anew as long as it comes forward.
func (f *following) step(what string, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(f.queue.c.settle, f.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	return f.persist(ctx, what, do)
}

// outgoing is a successor on its way.
type outgoing struct {
	queue    string
	envelope *task.Envelope
	after    func(error) // tells the hooks what came of it
}

// ending is how a task ended.
type ending struct {
	given wire.Given        // what it hands on, when it succeeded
	cause *task.RemoteError // nil: it succeeded
	state task.State        // when it failed
}

// ended deals with the end of the task of e: this run's, or one that could not be sent.
func (f *following) ended(e *task.Envelope, end ending) {
	parent := *e
	parent.SentAt, parent.Origin = f.at, f.request.NodeID
	if end.cause != nil {
		f.failing(&parent, end)
		return
	}
	inGroup := membershipOf(e)
	handedOn := false
	for i := range e.Then {
		l := &e.Then[i]
		var m *task.Membership
		if l.Last {
			m, handedOn = inGroup, true
		}
		f.queue.c.codec.Expand(&parent, l, thenLabel(i), f.queue.name, end.given, m, f.add)
	}
	if !handedOn {
		f.arrive(&parent, end)
	}
}

func (f *following) failing(parent *task.Envelope, end ending) {
	if len(parent.Else) > 0 {
		given, err := f.queue.c.codec.Fail(parent.ContentType, failureOf(parent.ID, end.cause))
		if err != nil {
			f.log(slog.LevelError, "a failure cannot be handed on", slog.Any("error", err))
		}
		for i := range parent.Else {
			label := "else" + strconv.Itoa(i)
			f.queue.c.codec.Expand(parent, elseLink(parent, parent.Else[i], label), label, f.queue.name, given, nil, f.add)
		}
	}
	f.skip(parent, parent.Then, end.cause.OfStep(parent.Name, parent.ID))
	f.arrive(parent, end)
}

func thenLabel(i int) string { return "then" + strconv.Itoa(i) }

func failureOf(id task.ID, cause *task.RemoteError) task.Failure {
	return task.Failure{ID: id, Type: cause.Type, Message: cause.Message, Stack: cause.Stack}
}

func membershipOf(e *task.Envelope) *task.Membership {
	if e.Chord == nil {
		return nil
	}
	return &task.Membership{Group: e.Group, Index: e.GroupIndex, Size: e.GroupSize, Chord: e.Chord}
}

// add takes a successor. It returns false when there is no sense in more.
func (f *following) add(s wire.Successor) bool {
	if s.Err != nil {
		f.unsent(s.Envelope, s.Err)
		return !f.stopped
	}
	f.outs = append(f.outs, outgoing{queue: s.Queue, envelope: s.Envelope})
	if len(f.outs) >= publishAtOnce {
		f.flush()
	}
	return !f.stopped
}

// unsent deals with a successor that cannot be sent: it has failed.
func (f *following) unsent(e *task.Envelope, cause error) {
	f.log(slog.LevelError, "a successor cannot be sent and fails", slog.String("successor", string(e.ID)), slog.Any("error", cause))
	f.fails(e, task.Remote(cause))
}

// fails records that a successor has failed before it could run, and deals with what follows it.
func (f *following) fails(e *task.Envelope, cause *task.RemoteError) {
	f.record(e.ID, e.Name, e, &e.Meta, cause)
	if !f.stopped {
		f.ended(e, ending{cause: cause, state: task.StateFailed})
	}
}

// skip records the failure of steps that do not run because one before them failed, for those who wait for them.
func (f *following) skip(parent *task.Envelope, links []task.Link, cause *task.RemoteError) {
	wire.EachStep(links, func(l *task.Link) bool {
		f.record(l.ID, l.Name, parent, &l.Meta, cause)
		return !f.stopped
	})
}

// record saves the failure of a task that did not run. from is its envelope or its parent's.
func (f *following) record(id task.ID, name string, from *task.Envelope, meta *task.Metadata, cause *task.RemoteError) {
	f.save(id, name, from, meta, resultstore.Record{State: task.StateFailed, Generation: wire.FirstGeneration(from.Life), Deliveries: 1, Error: cause, FinishedAt: f.at})
}

// flush publishes what was added, until it is confirmed or has failed.
func (f *following) flush() {
	for len(f.outs) > 0 && !f.stopped {
		outs := f.outs
		f.outs = nil
		f.publish(outs)
	}
}

// unfit is a successor that cannot be sent, and why.
type unfit struct {
	envelope *task.Envelope
	err      error
}

// allowed asks the hooks which successors may be sent.
func (f *following) allowed(outs []outgoing) (allowed []outgoing, vetoed []unfit) {
	c := f.queue.c
	for _, o := range outs {
		var err error
		if o.after, err = c.beforeEnqueue(c.settle, o.queue, o.envelope); err != nil {
			vetoed = append(vetoed, unfit{o.envelope, fmt.Errorf("swarmiji: vetoed: %w", err)})
			continue
		}
		allowed = append(allowed, o)
	}
	return allowed, vetoed
}

// publish hands outs to the broker. What is confirmed is not sent again: on most brokers it would run again.
func (f *following) publish(outs []outgoing) {
	outs, failures := f.allowed(outs)
	defer func() {
		for _, o := range outs { // what is left
			o.after(errNotSent)
		}
	}()
	for len(outs) > 0 {
		ok := f.step("successors", func(ctx context.Context) error {
			sent, messages := f.encode(&outs, &failures)
			if len(messages) == 0 {
				return nil
			}
			err := broker.PublishBatch(ctx, f.queue.c.cfg.Broker, messages)
			errs := broker.BatchErrors(err, len(messages))
			var left []outgoing
			for i, o := range sent {
				switch {
				case errs[i] == nil:
					o.after(nil)
					f.queue.c.cfg.Metrics.Sent.Inc(1)
					f.queue.c.notifySent(o.queue, o.envelope)
				case permanent(errs[i]): // a message must not make queues: whoever built the chain has to
					o.after(errs[i])
					failures = append(failures, unfit{o.envelope, errs[i]})
				default:
					left = append(left, o)
				}
			}
			if len(left) == 0 {
				return nil
			}
			outs = append(left, outs...)
			return err
		})
		if f.stopped = f.stopped || !ok; f.stopped {
			return
		}
	}
	for _, x := range failures {
		f.unsent(x.envelope, x.err)
	}
}

// encode takes as many of outs as go to the broker at a time, and writes their messages.
func (f *following) encode(outs *[]outgoing, failures *[]unfit) (taken []outgoing, messages []broker.Outgoing) {
	c := f.queue.c
	_, delays := capability.As[broker.Delayer](c.cfg.Broker)
	for size := 0; len(*outs) > 0 && size < publishBytes; *outs = (*outs)[1:] {
		o := (*outs)[0]
		// Each sending is a copy of its own: one that was not confirmed may be queued all the same.
		o.envelope.Copy = rand.Text()
		m, err := c.codec.Encode(o.queue, o.envelope)
		if err != nil {
			o.after(err)
			*failures = append(*failures, unfit{o.envelope, err})
			continue
		}
		out := broker.Outgoing{Queue: o.queue, Message: m}
		if delays { // else whoever receives it waits
			out.At = o.envelope.Meta.NotBefore.Or(time.Time{})
			wire.StampHeld(m, wire.HeaderHeld, out.At)
		}
		size += len(m.Body)
		taken, messages = append(taken, o), append(messages, out)
	}
	return taken, messages
}

// permanent reports whether publishing the same message again cannot help.
func permanent(err error) bool {
	return errors.Is(err, broker.ErrNoQueue) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrMalformed) || errors.Is(err, serializer.ErrValue)
}
