package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// listener receives all events and counts those of successful tasks.
type listener struct {
	sub   events.Subscription
	heard atomic.Int64
}

// eventsOfTask is the number of events of a successful task: sent, received, started, succeeded.
const eventsOfTask = 4

// listen subscribes to all events and counts them until the subscription is closed.
func listen(ctx context.Context, bus events.EventBus) (*listener, error) {
	sub, err := bus.Subscribe(ctx, events.Filter{})
	if err != nil {
		return nil, err
	}
	l := &listener{sub: sub}
	go func() {
		for {
			e, err := sub.Receive(ctx)
			if err != nil {
				return
			}
			switch e.Type {
			case events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded:
				l.heard.Add(1)
			}
		}
	}()
	return l, nil
}

// silence is the time without an event after which missing events count as lost.
const silence = 2 * time.Second

// awaitEvents waits until the events of n tasks have arrived, and returns the number of missing
// events.
func awaitEvents(ctx context.Context, c client, n int) (lost int) {
	s, ok := c.(*swarm)
	if !ok || s.listener == nil {
		return 0
	}
	want := int64(eventsOfTask * n)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	heard, since := s.listener.heard.Load(), time.Now()
	for heard < want && ctx.Err() == nil && time.Since(since) < silence {
		<-tick.C
		if now := s.listener.heard.Load(); now != heard {
			heard, since = now, time.Now()
		}
	}
	return int(want - heard)
}
