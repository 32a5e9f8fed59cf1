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

// flush publishes the added successors and those that are added meanwhile, such as the error tasks
// of a successor that could not be sent. It blocks until each is confirmed or has failed. If
// Run.Step gives a step up, it sets f.stopped and returns; the other successors are not sent.
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

// allowed calls the enqueue hooks for outs. It returns the successors that may be sent, each with
// its hooks for the outcome, and those that a hook has vetoed.
func (f *Sender) allowed(outs []outgoing) (allowed []outgoing, vetoed []unfit) {
	for _, o := range outs {
		var err error
		if o.after, err = f.c.BeforeEnqueue(o.queue, o.envelope); err != nil {
			vetoed = append(vetoed, unfit{o.envelope, fmt.Errorf("swarmiji: vetoed by an enqueue hook: %w", err)})
			continue
		}
		allowed = append(allowed, o)
	}
	return allowed, vetoed
}

// publish calls the enqueue hooks for outs, publishes outs, and repeats that until each is
// confirmed or has failed. It blocks meanwhile. A confirmed successor is not sent again; for it
// publish calls Config.Sent. A vetoed, refused or unencodable one is handled as a failed task. If
// the broker fails for too long, publish sets f.stopped and returns. It tells the hooks the outcome
// of each.
func (f *Sender) publish(outs []outgoing) {
	outs, failures := f.allowed(outs)
	defer func() {
		for _, o := range outs { // those without an outcome
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
				// such as a missing queue: the sender of a task declares queues, a message must not
				case Permanent(errs[i]):
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
		f.failUnsent(x.envelope, x.err)
	}
}

// encode removes the next successors from outs, until their messages have publishBytes, and returns
// them with these messages, in the same order. Each gets a new random Envelope.Copy, which
// distinguishes the messages of one task. It adds successors that cannot be encoded to failures and
// tells their hooks. If the broker can delay messages, each message has its earliest delivery;
// otherwise its consumer waits.
func (f *Sender) encode(outs *[]outgoing, failures *[]unfit) (sent []outgoing, messages []broker.Outgoing) {
	c := f.c
	_, delays := capability.As[broker.Delayer](c.Broker)
	for size := 0; len(*outs) > 0 && size < publishBytes; *outs = (*outs)[1:] {
		o := (*outs)[0]
		// Each attempt sends a new copy, since an unconfirmed message may be queued.
		o.envelope.Copy = rand.Text()
		m, err := c.Codec.Encode(o.queue, o.envelope)
		if err != nil {
			o.after(err)
			*failures = append(*failures, unfit{o.envelope, err})
			continue
		}
		out := broker.Outgoing{Queue: o.queue, Message: m}
		if delays { // otherwise its consumer waits until it is due
			out.At = o.envelope.Meta.NotBefore.Or(time.Time{})
			wire.StampHeld(m, wire.HeaderHeld, out.At)
		}
		size += len(m.Body)
		sent, messages = append(sent, o), append(messages, out)
	}
	return sent, messages
}

// Permanent reports whether publishing the same message again cannot succeed: a missing queue, or a
// message that is too large or malformed. Permanent(nil) is false.
func Permanent(err error) bool {
	return errors.Is(err, broker.ErrNoQueue) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrMalformed) || errors.Is(err, serializer.ErrValue)
}
