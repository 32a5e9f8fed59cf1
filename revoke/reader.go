package revoke

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
)

// quiet is how long nothing has to come before an event that was published, and has not come back, is published again. A
// bus may lose an event; twice the same revocation does no harm.
const quiet = 2 * time.Second

// openTimeout bounds one attempt to open a stream, so that the log tells why there is none.
const openTimeout = 10 * time.Second

// reader reads the revocations of a bus. What is published through it is known to be stored when it comes back.
type reader struct {
	bus    events.EventBus
	stream events.Subscription
	unseen map[string]events.Event // by token; published and not come back
}

// openReader opens the stream of what the bus keeps since a time, and of what comes; of a live one only of what comes.
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

// publish sends an event, which is then looked out for.
func (r *reader) publish(ctx context.Context, e events.Event) error {
	if err := r.bus.Publish(ctx, e); err != nil {
		return fmt.Errorf("revoke: publish: %w", err)
	}
	r.unseen[tokenOf(&e)] = e
	return nil
}

// next returns the next revocation.
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

// receive waits for the next event; while one is looked out for, no longer than quiet.
func (r *reader) receive(ctx context.Context) (events.Event, error) {
	if len(r.unseen) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	return r.stream.Receive(ctx)
}

// finish reads until all that was published has come back, and hands every revocation to each, which may be nil.
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

func (r *reader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_ = r.stream.Close(ctx) // it was read to where it had to be; the bus closes what is left
}
