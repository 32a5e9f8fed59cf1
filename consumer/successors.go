package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// publishSuccessors submits the tasks that follow this one, and reports whether to go on. Their ids were chosen at
// submission or are derived from the parent's, so that a repeat after a crash sends the same messages again.
func (r *run) publishSuccessors(ctx context.Context, v verdict) bool {
	links, label := r.request.Then, "then"
	if v.kind != succeeded {
		links, label = r.request.Else, "else"
	}
	if len(links) == 0 {
		return true
	}
	var outs []broker.Outgoing
	for i := range links {
		e, queue, err := r.successor(&links[i], label+strconv.Itoa(i), v)
		var m *broker.Message
		if err == nil {
			m, err = r.queue.c.codec.Encode(queue, e)
		}
		if err == nil {
			outs = append(outs, broker.Outgoing{Queue: queue, Message: m})
		} else if !r.failSuccessor(ctx, e, err) {
			return false
		}
	}
	// What is confirmed is not sent again: on most brokers it would run again.
	return r.persist(ctx, "successors", func(ctx context.Context) error {
		if len(outs) == 0 {
			return nil
		}
		err := broker.PublishBatch(ctx, r.queue.c.cfg.Broker, outs)
		if err == nil {
			return nil
		}
		errs := broker.BatchErrors(err, len(outs))
		var left []broker.Outgoing
		for i, o := range outs {
			switch {
			case errs[i] == nil:
			case permanent(errs[i]): // a message must not make queues: whoever built the chain has to
				if e, _, derr := r.queue.c.codec.Decode(o.Message); derr == nil {
					r.failSuccessor(ctx, e, errs[i])
				}
			default:
				left = append(left, o)
			}
		}
		if outs = left; len(left) == 0 {
			return nil
		}
		return err
	})
}

// permanent reports whether publishing the same message again cannot help.
func permanent(err error) bool {
	return errors.Is(err, broker.ErrNoQueue) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrMalformed)
}

// failSuccessor records that a successor which cannot be sent has failed, so that whoever waits for it hears of it.
func (r *run) failSuccessor(ctx context.Context, e *task.Envelope, cause error) bool {
	r.log(slog.LevelError, "a successor cannot be sent and fails", slog.String("successor", string(e.ID)), slog.Any("error", cause))
	store := r.store()
	if store == nil || e.ID.Check() != nil {
		return true
	}
	rec := resultstore.Record{
		ID: e.ID, Name: task.Text(e.Name, 255), State: task.StateFailed, Deliveries: 1, Error: task.Remote(cause), FinishedAt: r.ended,
		NodeID: r.request.NodeID, ReplyTo: e.ReplyTo, Correlation: e.Correlation,
	}
	unfit := r.queue.c.codec.ProtectRecord(&rec, e.Meta.Compression)
	return r.persist(ctx, "failure of a successor", func(ctx context.Context) error {
		if unfit != nil {
			return fmt.Errorf("%w: %w", errUnsendable, unfit)
		}
		err := store.Save(ctx, rec)
		if errors.Is(err, resultstore.ErrStale) || errors.Is(err, resultstore.ErrUnreachable) || errors.Is(err, resultstore.ErrMalformed) {
			return nil
		}
		return err
	})
}

// successor makes the envelope of a link.
func (r *run) successor(l *task.Link, label string, v verdict) (e *task.Envelope, queue string, err error) {
	parent := &r.request
	e = &task.Envelope{
		ID: l.ID, Root: parent.RootID(), Parent: parent.ID, Name: l.Name, ContentType: l.ContentType, Args: l.Args, Meta: l.Meta,
		Base: parent.Base, SentAt: r.ended, Origin: parent.NodeID, ReplyTo: parent.ReplyTo, Correlation: parent.Correlation,
		Headers: parent.SuccessorHeaders(), Then: l.Then, Else: l.Else,
	}
	if e.ID == "" {
		e.ID = task.Derive(parent.ID, label)
	}
	if queue = l.Queue; queue == "" {
		queue = r.queue.name
	}
	if err := errors.Join(task.CheckName(e.Name), task.CheckName(queue), e.ID.Check(), e.Meta.Check()); err != nil {
		return e, "", err
	}
	return e, queue, r.feed(e, l, v)
}

// feed gives a successor what it gets of its parent.
func (r *run) feed(e *task.Envelope, l *task.Link, v verdict) error {
	c := r.queue.c.codec
	if l.Feed == task.FeedNone {
		return nil
	}
	data, contentType := v.result, v.contentType
	var values []any // what FeedPrepend puts first
	if v.kind != succeeded {
		remote := task.Remote(v.err)
		f := task.Failure{ID: r.request.ID, Type: remote.Type, Message: remote.Message, Stack: remote.Stack}
		var err error
		if data, contentType, err = c.Marshal(r.request.ContentType, f); err != nil {
			if data, contentType, err = c.Marshal("", f); err != nil {
				return err
			}
		}
		values = []any{string(f.ID), f.Message, f.Stack}
	}
	if l.Feed == task.FeedWhole {
		e.Args, e.ContentType = data, contentType
		return nil
	}
	var value any
	if err := c.Unmarshal(contentType, data, &value); err != nil {
		return err
	}
	var args any
	switch l.Feed {
	case task.FeedInto:
		fields := make(map[string]any)
		if err := c.Unmarshal(l.ContentType, l.Args, &fields); err != nil {
			return err
		}
		fields[l.Field] = value
		args = fields
	case task.FeedPrepend:
		var list []any
		if err := c.Unmarshal(l.ContentType, l.Args, &list); err != nil {
			return err
		}
		if values == nil {
			values = []any{value}
		}
		args = append(values, list...)
	default:
		return fmt.Errorf("swarmiji: unknown way %q to hand a result on", l.Feed)
	}
	var err error
	e.Args, e.ContentType, err = c.Marshal(l.ContentType, args)
	return err
}
