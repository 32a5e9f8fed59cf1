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

// skew is how far the broker's clock may be ahead of those of the nodes. What it makes the broker send too much of is
// filtered out here.
const skew = time.Minute

// placeWait is how long the broker may take to find the place where a stream was interrupted.
const placeWait = 10 * time.Second

// errNoPlace is the reason to look for the place in another way.
var errNoPlace = errors.New("amqp: the stream queue was made anew")

// replay is a subscription to what is kept and what comes after it. It reads no further than its reader, so that what is
// not read costs nobody anything.
type replay struct {
	stream
	filter    events.Filter
	events    chan events.Event
	malformed atomic.Uint64

	// Where it is; for its goroutine alone.
	since time.Time // older messages are not wanted
	begun bool      // a message was taken
	last  int64     // its offset
	taken int64     // and when it was sent, 0 if it did not say
}

// Replay implements [events.Retainer]. It waits, and fails, like [Bus.Subscribe]. The stream is not buffered here beyond what
// is fetched ahead: one that is read slowly is behind, and what is not kept any more when it comes there is missing.
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

// run reads over one channel until that ends.
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
		if err := r.findPlace(ctx, f); err != nil {
			return err
		}
	}
	for {
		d, ok, err := f.Next(ctx)
		if err != nil || !ok {
			return err
		}
		if !r.take(ctx, &d) {
			return nil
		}
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// offset is where to begin. A stream that goes on begins with the last message it took, to see whether that is there.
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

// findPlace takes the message out of f that was the last before the interruption, or what comes there if it is not kept any
// more. When nothing comes, or another message in its place, somebody has deleted the queue and it was made anew; that is
// read from its beginning.
func (r *replay) findPlace(ctx context.Context, f *amqpconn.Feed) error {
	within, cancel := context.WithTimeout(ctx, r.bus.placeWait)
	defer cancel()
	d, ok, err := f.Next(within)
	switch {
	case err != nil:
		return err
	case !ok && ctx.Err() != nil:
		return nil // next will see it too
	}
	offset, taken := place(&d)
	switch {
	case !ok, offset < r.last, offset == r.last && taken != r.taken:
		r.begun = false
		if t := time.UnixMilli(r.taken + 1); t.After(r.since) {
			r.since = t
		}
		return errNoPlace
	case offset > r.last && !r.take(ctx, &d):
		return nil
	}
	return f.Taken(&d)
}

// place is where a message stands in the queue, and when it was sent: 0 if it does not say.
func place(d *amqp.Delivery) (offset, taken int64) {
	offset, _ = d.Headers["x-stream-offset"].(int64)
	taken, _ = d.Headers[headerTaken].(int64)
	return offset, taken
}

// take hands on the events of a message that the subscriber wants, and waits for the reader; it returns false at the end of
// ctx. A message that holds no events counts as one dropped event.
func (r *replay) take(ctx context.Context, d *amqp.Delivery) bool {
	offset, taken := place(d)
	if taken == 0 || r.since.IsZero() || taken >= r.since.UnixMilli() {
		es, err := events.Decode(d.Body)
		if err != nil {
			r.malformed.Add(1)
		}
		for i := range es {
			if !r.filter.Match(&es[i]) {
				continue
			}
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

// Retention implements [events.RetentionTeller].
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription].
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	if r.ctx.Err() != nil { // what waits is not for a closed stream
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

// Dropped implements [events.DropCounter]: messages that hold no events. How many were not kept any more when the stream
// came to them is not known.
func (r *replay) Dropped() uint64 { return r.malformed.Load() }
