package workflow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// flush publishes the added successors, until each is confirmed or has failed.
func (f *Sender) flush() {
	for len(f.outs) > 0 && !f.stopped {
		outs := f.outs
		f.outs = nil
		f.publish(outs)
	}
}

// unfit is a successor that cannot be sent, with the reason.
type unfit struct {
	envelope *task.Envelope
	err      error
}

// allowed asks the hooks which successors may be sent.
func (f *Sender) allowed(outs []outgoing) (allowed []outgoing, vetoed []unfit) {
	for _, o := range outs {
		var err error
		if o.after, err = f.c.BeforeEnqueue(o.queue, o.envelope); err != nil {
			vetoed = append(vetoed, unfit{o.envelope, fmt.Errorf("swarmiji: vetoed: %w", err)})
			continue
		}
		allowed = append(allowed, o)
	}
	return allowed, vetoed
}

// publish publishes outs. A confirmed one is not sent again, since most brokers would run it again.
func (f *Sender) publish(outs []outgoing) {
	outs, failures := f.allowed(outs)
	defer func() {
		for _, o := range outs { // the rest
			o.after(ErrNotSent)
		}
	}()
	for len(outs) > 0 {
		ok := f.run.Step("successors", func(ctx context.Context) error {
			sent, messages := f.encode(&outs, &failures)
			if len(messages) == 0 {
				return nil
			}
			err := broker.PublishBatch(ctx, f.c.Broker, messages)
			errs := broker.BatchErrors(err, len(messages))
			var left []outgoing
			for i, o := range sent {
				switch {
				case errs[i] == nil:
					o.after(nil)
					f.c.Sent(o.queue, o.envelope)
				case Permanent(errs[i]): // a message must not create queues; its sender has to
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

// encode writes the messages of the next batch of outs.
func (f *Sender) encode(outs *[]outgoing, failures *[]unfit) (taken []outgoing, messages []broker.Outgoing) {
	c := f.c
	_, delays := capability.As[broker.Delayer](c.Broker)
	for size := 0; len(*outs) > 0 && size < publishBytes; *outs = (*outs)[1:] {
		o := (*outs)[0]
		// Each attempt sends a copy: an unconfirmed message may be queued all the same.
		o.envelope.Copy = rand.Text()
		m, err := c.Codec.Encode(o.queue, o.envelope)
		if err != nil {
			o.after(err)
			*failures = append(*failures, unfit{o.envelope, err})
			continue
		}
		out := broker.Outgoing{Queue: o.queue, Message: m}
		if delays { // otherwise its consumer waits
			out.At = o.envelope.Meta.NotBefore.Or(time.Time{})
			wire.StampHeld(m, wire.HeaderHeld, out.At)
		}
		size += len(m.Body)
		taken, messages = append(taken, o), append(messages, out)
	}
	return taken, messages
}

// Permanent reports whether publishing the same message again cannot help.
func Permanent(err error) bool {
	return errors.Is(err, broker.ErrNoQueue) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrMalformed) || errors.Is(err, serializer.ErrValue)
}
