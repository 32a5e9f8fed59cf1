package control

import (
	"context"
	"sync"

	"github.com/swarmiji/swarmiji/events"
)

// listener receives the replies on one or two buses. Make one with [listen].
type listener struct {
	subs     []events.Subscription
	received chan received
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// received is a result of a subscription's Receive.
type received struct {
	event events.Event
	err   error
}

// listen subscribes to the replies on each bus that is not nil. It waits for the servers until ctx
// ends, and returns the first error. The end of ctx does not end the listener: close it.
func listen(ctx context.Context, buses ...events.EventBus) (*listener, error) {
	l := &listener{received: make(chan received)}
	for _, bus := range buses {
		if bus == nil {
			continue
		}
		sub, err := bus.Subscribe(ctx, events.Filter{Types: []string{ReplyEvent}})
		if err != nil {
			l.close(ctx)
			return nil, err
		}
		l.subs = append(l.subs, sub)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	for _, sub := range l.subs {
		l.done.Go(func() { l.forward(life, sub) })
	}
	return l, nil
}

// forward passes what sub receives to receive until ctx ends. It returns after an error of sub.
func (l *listener) forward(ctx context.Context, sub events.Subscription) {
	for {
		e, err := sub.Receive(ctx)
		select {
		case l.received <- received{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// receive waits for the next event of any bus. Returns the error of a subscription, or ctx's error.
func (l *listener) receive(ctx context.Context) (events.Event, error) {
	select {
	case r := <-l.received:
		return r.event, r.err
	case <-ctx.Done():
		return events.Event{}, ctx.Err()
	}
}

// close ends the subscriptions. It waits for the servers, at most for closeTime; the end of ctx does
// not end the wait. Errors are ignored: all replies were received, and the streams end with their
// bus at the latest.
func (l *listener) close(ctx context.Context) {
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	for _, sub := range l.subs {
		_ = sub.Close(closing)
	}
}
