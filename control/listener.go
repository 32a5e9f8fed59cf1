package control

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// listener receives the replies on one or two buses. Make one with [listen].
type listener struct {
	subs []events.Subscription
	stop chan struct{} // closed by close
	done sync.WaitGroup
}

// received is a result of a subscription's Receive.
type received struct {
	event events.Event
	err   error
}

// secondTime limits the wait for the second subscription of a listener after the first succeeded.
const secondTime = time.Second

// listen subscribes to the replies on bus and, if it is not nil, on second. It waits for the server
// of bus until ctx ends, and for that of second at most secondTime longer. both reports whether the
// listener hears second, whose subscription may fail. Returns the error of the subscription to bus.
func listen(ctx context.Context, bus, second events.EventBus) (l *listener, both bool, err error) {
	l = &listener{stop: make(chan struct{})}
	replies := events.Filter{Types: []string{ReplyEvent}}
	optional, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var other events.Subscription
	if second != nil {
		l.done.Go(func() {
			if sub, err := second.Subscribe(optional, replies); err == nil {
				other = sub
			}
		})
	}
	sub, err := bus.Subscribe(ctx, replies)
	if err != nil {
		giveUp()
	}
	defer time.AfterFunc(secondTime, giveUp).Stop()
	l.done.Wait()
	if other != nil {
		l.subs = append(l.subs, other)
	}
	if err != nil {
		l.close(ctx)
		return nil, false, err
	}
	l.subs = append(l.subs, sub)
	return l, other != nil, nil
}

// receive returns a channel with the results of all subscriptions until ctx ends, and with the
// replies that they hold then. Errors are those of buses. The channel is closed after the last
// result. Call it once.
func (l *listener) receive(ctx context.Context) <-chan received {
	all := make(chan received)
	for _, sub := range l.subs {
		l.done.Go(func() { l.forward(ctx, sub, all) })
	}
	go func() {
		l.done.Wait()
		close(all)
	}()
	return all
}

// forward passes the results of sub to the channel to. It ends after an error, which it passes too
// unless ctx has ended, and when the listener is closed.
func (l *listener) forward(ctx context.Context, sub events.Subscription, to chan<- received) {
	for {
		e, err := sub.Receive(ctx)
		if err != nil && ctx.Err() != nil {
			return
		}
		select {
		case to <- received{e, err}:
		case <-l.stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// close ends the subscriptions. End the ctx of receive before. It waits for the servers, at most
// for closeTime; the end of ctx does not end the wait. Errors are ignored: all replies were
// received, and the streams end with their bus at the latest.
func (l *listener) close(ctx context.Context) {
	close(l.stop)
	l.done.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	for _, sub := range l.subs {
		_ = sub.Close(closing)
	}
}
