package amqpevents

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// skew is the largest tolerated lead of the broker's clock over those of the nodes. The broker
// therefore sends older messages, too, which are filtered here.
const skew = time.Minute

// positionWait limits the time in which the broker must find the position at which a stream was
// interrupted.
const positionWait = 10 * time.Second

// errRecreated makes the next run look for its position by time, because the offsets of the old
// queue are invalid.
var errRecreated = errors.New("amqp: the stream queue was deleted and made again")

// replay is a subscription to kept events and then to new ones. It fetches only a few messages more
// than its reader has received, so that unread events use no memory here.
type replay struct {
	stream
	filter    events.Filter
	events    chan events.Event
	malformed atomic.Uint64

	// The fields below hold the position. They are only for the stream's goroutine.
	since time.Time // older messages are skipped
	begun bool      // a message was received
	last  int64     // offset of the last received message
	taken int64     // its header swj-taken; 0: missing
}

// Replay implements [events.Retainer]: it returns a stream of kept events from since on, and then
// of new ones. It blocks until the stream is open, and fails like [Bus.Subscribe]. A stream that is
// read slowly is late, and misses, without a count, the events that are removed before it comes to
// them.
//
// Returns ErrNotRetained if the bus keeps no events, ErrClosed after Close. It takes b.mu, but not
// while it waits.
func (b *Bus) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.closed.Load() {
		return nil, events.ErrClosed
	}
	if b.log == nil {
		return nil, events.ErrNotRetained
	}
	f.Types = slices.Clone(f.Types)
	r := &replay{filter: f, since: since, events: make(chan events.Event, events.MaxBatch)}
	if err := r.start(ctx, b, b.log.queue, r.run); err != nil {
		return nil, err
	}
	return r, nil
}

// run declares the stream queue, consumes it over one channel, reports that to start (r.open), and
// delivers its events until the channel or ctx ends. After an interruption it first finds its
// position. It waits while Receive does not take the events. Supervise calls it on the stream's
// goroutine. Returns nil if ctx has ended, otherwise the error that ended the channel, or
// errRecreated.
func (r *replay) run(ctx context.Context, ch *amqpconn.Channel) error {
	if err := r.bus.log.ready(ctx); err != nil {
		return err
	}
	deliveries, err := ch.Session().ConsumeStream(ch.Channel, r.from, r.offset(), amqpconn.FeedPrefetch)
	if err != nil {
		return err
	}
	r.open(nil)
	f := amqpconn.NewFeed(ch, deliveries)
	if r.begun {
		if err := r.findPosition(ctx, f); err != nil {
			return err
		}
	}
	for {
		d, ok, err := f.Next(ctx)
		if err != nil || !ok {
			return err
		}
		if !r.deliver(ctx, &d) {
			return nil
		}
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// offset returns the x-stream-offset at which to begin. A stream that continues begins with the
// last message that it received, to check that the queue still holds it. A new one begins at
// r.since less skew, for clocks that differ; without a time in r.since it is "first".
func (r *replay) offset() any {
	switch {
	case r.begun:
		return r.last
	case r.since.Before(time.Unix(0, 0).Add(skew)):
		return "first"
	default:
		return r.since.Add(-skew)
	}
}

// findPosition reads the first message after a reconnect, and waits for it up to positionWait.
//
//   - It is the last received message: findPosition skips it and returns nil.
//   - It is a later message, because the last one was removed: findPosition delivers it.
//   - It is another message, or none arrives: the queue was deleted and made again. findPosition
//     returns errRecreated, and the next run begins by time.
//   - ctx has ended: nil.
//
// Returns the error of f if its channel ends.
func (r *replay) findPosition(ctx context.Context, f *amqpconn.Feed) error {
	within, cancel := context.WithTimeout(ctx, r.bus.positionWait)
	defer cancel()
	d, ok, err := f.Next(within)
	switch {
	case err != nil:
		return err
	case !ok && ctx.Err() != nil:
		return nil // the next call of Next sees it, too
	}
	offset, taken := position(&d)
	switch {
	case !ok, offset < r.last, offset == r.last && taken != r.taken:
		r.begun = false
		if t := time.UnixMilli(r.taken + 1); t.After(r.since) {
			r.since = t
		}
		return errRecreated
	case offset > r.last && !r.deliver(ctx, &d):
		return nil
	}
	return f.Taken(&d)
}

// position returns the offset of a message in the queue and the time in its header swj-taken. 0:
// the header is missing.
func position(d *amqp.Delivery) (offset, taken int64) {
	offset, _ = d.Headers["x-stream-offset"].(int64)
	taken, _ = d.Headers[headerTaken].(int64)
	return offset, taken
}

// deliver sends the matching events of a message to Receive, and waits until they are received. A
// message from before r.since is skipped. It counts a message that is not a valid list of events as
// one dropped event. In these cases it advances the position and returns true. If ctx ends first it
// returns false without advancing the position.
func (r *replay) deliver(ctx context.Context, d *amqp.Delivery) bool {
	offset, taken := position(d)
	if taken == 0 || r.since.IsZero() || taken >= r.since.UnixMilli() {
		es, err := r.filter.Decode(d.Body)
		if err != nil {
			r.malformed.Add(1)
		}
		for i := range es {
			select {
			case r.events <- es[i]:
			case <-ctx.Done():
				return false
			}
		}
	}
	r.begun, r.last, r.taken = true, offset, taken
	return true
}

// Retention implements [events.RetentionTeller]: it returns Config.Retain with its defaults.
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription]: it waits for the next event from the goroutine of the
// stream and returns it. If ctx has ended and an event waits, it returns either. Returns ctx's
// error when ctx ends and ErrClosed after Close of the subscription or the bus.
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	if r.ctx.Err() != nil { // a closed stream returns no waiting events
		return events.Event{}, events.ErrClosed
	}
	select {
	case e := <-r.events:
		return e, nil
	case <-ctx.Done():
		return events.Event{}, ctx.Err()
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	}
}

// Dropped implements [events.DropCounter]: it counts messages that are not valid lists of events,
// once each. Events that were removed before the stream came to them are not counted.
func (r *replay) Dropped() uint64 { return r.malformed.Load() }
