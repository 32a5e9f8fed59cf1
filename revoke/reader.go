package revoke

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
)

// quiet is the time without events after which an unconfirmed event is published again. A bus may
// lose an event, and a repeated revocation is harmless.
const quiet = 2 * time.Second

// openTimeout limits one attempt to open a stream, so that its error is logged.
const openTimeout = 10 * time.Second

// reader reads the revocations of a bus. An event that it publishes is stored when the reader
// receives it.
type reader struct {
	bus    events.EventBus
	stream events.Subscription
	unseen map[string]events.Event // by token; published, but not yet received
}

// openReader opens the stream of events stored since a time (zero: of all) and of new events. With
// live it opens the stream of new events only. It waits for at most openTimeout. Returns errors of
// the bus, and [events.ErrNotRetained] for a bus that stores none. Close the reader at the end.
func openReader(ctx context.Context, bus events.EventBus, live bool, since time.Time) (*reader, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	filter := events.Filter{Types: []string{events.TaskRevoke}}
	r := &reader{bus: bus, unseen: make(map[string]events.Event)}
	var err error
	if live {
		r.stream, err = bus.Subscribe(ctx, filter)
	} else if keeper, ok := capability.As[events.Retainer](bus); ok {
		r.stream, err = keeper.Replay(ctx, filter, since)
	} else {
		err = events.ErrNotRetained
	}
	if err != nil {
		return nil, fmt.Errorf("revoke: read revocations: %w", err)
	}
	return r, nil
}

// publish publishes an event once and adds it to r.unseen until it is received. Returns the error
// of the bus; r.unseen is then unchanged.
func (r *reader) publish(ctx context.Context, e events.Event) error {
	if err := r.bus.Publish(ctx, e); err != nil {
		return fmt.Errorf("revoke: publish: %w", err)
	}
	r.unseen[tokenOf(&e)] = e
	return nil
}

// next blocks until the next revocation and returns it. If the reader has published its event, next
// removes the event from r.unseen. While events are unseen, it publishes them again after each
// quiet period. Returns the cause of ctx or an error of the bus.
func (r *reader) next(ctx context.Context) (Revocation, error) {
	for {
		e, err := r.receive(ctx)
		switch {
		case err == nil:
			v := read(&e)
			delete(r.unseen, v.token)
			return v, nil
		case ctx.Err() != nil:
			return Revocation{}, context.Cause(ctx)
		case !errors.Is(err, context.DeadlineExceeded):
			return Revocation{}, fmt.Errorf("revoke: read revocations: %w", err)
		}
		for _, e := range r.unseen {
			if err := r.bus.Publish(ctx, e); err != nil {
				return Revocation{}, fmt.Errorf("revoke: publish: %w", err)
			}
		}
	}
}

// receive blocks until the next event and returns it. While events are unseen, it waits at most
// quiet and then returns [context.DeadlineExceeded].
func (r *reader) receive(ctx context.Context) (events.Event, error) {
	if len(r.unseen) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	return r.stream.Receive(ctx)
}

// finish reads until all published events have been received, so the bus has stored them. It calls
// each for each revocation that it reads; each may be nil. Returns the errors of next.
func (r *reader) finish(ctx context.Context, each func(*Revocation)) error {
	for len(r.unseen) > 0 {
		v, err := r.next(ctx)
		if err != nil {
			return err
		}
		if each != nil {
			each(&v)
		}
	}
	return nil
}

// close closes the stream within openTimeout. It ignores the error.
func (r *reader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_ = r.stream.Close(ctx) // read as far as needed; the bus closes the stream at the latest
}
