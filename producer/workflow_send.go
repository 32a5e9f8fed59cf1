package producer

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// rootEnvelope returns the envelope of an imaginary parent task. The first steps of the workflow
// are made as the successors of this parent, which is never sent.
func (b *builder) rootEnvelope() *task.Envelope {
	c := &b.work.Call
	e := &task.Envelope{
		Root: b.root(), ID: c.Parent, Base: b.p.base, SentAt: now(), Origin: b.p.cfg.Report.NodeID, Correlation: c.Correlation, Headers: maps.Clone(c.Headers),
	}
	if b.p.cfg.Results != nil {
		e.ReplyTo = b.p.cfg.Report.NodeID
	}
	return e
}

// root returns the root of all tasks of the workflow: the one of the call, else the id of the
// workflow.
func (b *builder) root() task.ID {
	if root := b.work.Call.Root; root != "" {
		return root
	}
	return b.id
}

// given encodes args, the argument of the first step. For [task.None] it returns an empty value.
// Returns the error of the serializer.
func (b *builder) given(args any) (wire.Given, error) {
	if _, none := args.(task.None); none {
		return wire.Given{}, nil
	}
	data, ct, err := b.p.codec.Marshal(b.p.cfg.Defaults.Serializer.Or(""), args)
	if err != nil {
		return wire.Given{}, fmt.Errorf("arguments: %w", err)
	}
	return wire.Given{Value: wire.Value{ContentType: ct, Data: data}}, nil
}

// sendAll makes the first steps of l, publishes them in batches and waits for their confirms. If
// one cannot be made, it sends none. It stops at the first batch with an error and returns that.
// Middleware learns the outcome of each.
func (b *builder) sendAll(l *task.Link) error {
	given, err := b.given(b.work.Args)
	if err != nil {
		return err
	}
	var first []*staged
	b.p.codec.Expand(b.rootEnvelope(), l, "", "", given, nil, func(s wire.Successor) bool {
		var st *staged
		if st, err = b.stage(s); err == nil {
			first = append(first, st)
		}
		return err == nil
	})
	if err != nil {
		b.notifyEnd(first, err)
		return err
	}
	if b.store != nil {
		return b.storeTx(first)
	}
	for part := range slices.Chunk(first, firstBatch) {
		if err := b.publish(part); err != nil {
			b.notifyEnd(first, err)
			return err
		}
	}
	return nil
}

// stream publishes one member of the group l for each input of the stream, in batches, and waits
// for their confirms. The last member carries the number of members. Without inputs it sends the
// step behind the group with an empty list. It stops at the first error and returns it; earlier
// batches were sent.
func (b *builder) stream(l *task.Link) error {
	parent := b.rootEnvelope()
	chord := wire.Callback(l, l.ID, nil, parent.ReplyTo)
	next, stop := iter.Pull(b.work.Stream)
	defer stop()
	input, more := next()
	if !more {
		b.work.Args = []any{}
		return b.sendAll(l)
	}
	part := make([]*staged, 0, firstBatch)
	for i := 0; more; i++ {
		given, err := b.given(input)
		if err != nil {
			b.notifyEnd(part, err)
			return err
		}
		m := &task.Membership{Group: l.ID, Index: i, Chord: chord}
		if input, more = next(); !more {
			m.Size = i + 1
		}
		b.p.codec.Member(parent, l, l.ID, "", given, m, func(s wire.Successor) bool {
			var st *staged
			if st, err = b.stage(s); err == nil {
				part = append(part, st)
			}
			return err == nil
		})
		if err == nil && (len(part) >= firstBatch || !more) {
			err = b.publish(part)
			part = part[:0]
		}
		if err != nil {
			b.notifyEnd(part, err)
			return err
		}
	}
	return nil
}

// stage prepares one of the first steps for its publish and runs the middleware for it. It
// registers no waiter; await has done so. Returns the error of the step or of middleware; do not
// use the first result then.
func (b *builder) stage(f wire.Successor) (*staged, error) {
	if f.Err != nil {
		return nil, fmt.Errorf("step %s: %w", f.Envelope.Name, f.Err)
	}
	s := &staged{producer: b.p, own: *f.Envelope, orderKey: b.work.Call.OrderKey, followed: true, inTx: b.store != nil, pending: &resolved{id: f.Envelope.ID}}
	s.own.Copy = "" // it is the only copy
	s.own.Parent, s.own.Root = b.work.Call.Parent, b.root()
	s.setEnvelope(&s.own)
	return s, s.runMiddleware(b.ctx, f.Queue, s.envelope)
}

// notifyEnd tells middleware that the steps of part were not sent because of err, except for those
// whose outcome it knows already.
func (b *builder) notifyEnd(part []*staged, err error) {
	for _, s := range part {
		s.notifyEnd(err)
	}
}

// publish publishes first steps in one batch and waits for their confirms within the default
// timeout. Confirmed ones are counted and their events sent; middleware learns the outcome of each.
// Returns the errors of at most maxNamed steps, joined, or nil if all are confirmed.
func (b *builder) publish(part []*staged) error {
	ctx, cancel := b.p.withTimeout(b.ctx)
	defer cancel()
	outs := make([]broker.Outgoing, len(part))
	for i, s := range part {
		outs[i] = s.out
	}
	errs := broker.BatchErrors(broker.PublishBatch(ctx, b.p.cfg.Broker, outs), len(outs))
	at := time.Now()
	var failed []error
	for i, s := range part {
		if errs[i] == nil {
			b.p.confirmed(s, at)
			continue
		}
		s.notifyEnd(errs[i])
		if len(failed) < maxNamed {
			failed = append(failed, fmt.Errorf("%s %s: %w", s.envelope.Name, s.envelope.ID, errs[i]))
		}
	}
	return errors.Join(failed...)
}

// maxNamed limits the number of failed steps that an error names.
const maxNamed = 5
