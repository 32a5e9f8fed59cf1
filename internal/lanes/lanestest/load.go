// Package lanestest measures over a real broker how soon the tasks of light keys start beside the
// backlog of heavy keys. Time is counted in starts, so that the result does not depend on the speed
// of the machine.
package lanestest

import (
	"context"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
)

// load is a backlog of heavy keys, and light keys whose tasks arrive while it is worked off.
type load struct {
	Producers             int // the tasks of each key are spread over them
	HeavyKeys, HeavyTasks int // heavy keys, and tasks of each
	LightKeys, LightTasks int // light keys, and tasks of each
	Prefetch              int // of the only consumer
}

// result holds the numbers of starts between the publishing of a light task and its start.
type result struct{ waits []int }

// late returns the number of light tasks that waited for more than limit starts.
func (r result) late(limit int) (n int) {
	for _, wait := range r.waits {
		if wait > limit {
			n++
		}
	}
	return n
}

// longest returns the longest wait, in starts.
func (r result) longest() (n int) {
	for _, wait := range r.waits {
		n = max(n, wait)
	}
	return n
}

// run declares queue, publishes the heavy tasks, and consumes the queue until all light tasks have
// started. The light tasks are published while the first half of the heavy ones starts. Each
// producer and the consumer has a Broker of its own, which open returns. The rest is purged.
func (l load) run(ctx context.Context, t testing.TB, queue broker.Queue, open func() broker.Broker) result {
	t.Helper()
	producers := make([]broker.Broker, l.Producers)
	for i := range producers {
		producers[i] = open()
		if err := broker.Declare(ctx, producers[i], queue); err != nil {
			t.Fatalf("Declare: %v", err)
		}
	}
	l.publishHeavy(ctx, t, queue.Name, producers)
	consumer := open()
	s, err := consumer.Subscribe(ctx, queue.Name, broker.SubscribeOptions{Prefetch: l.Prefetch})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	lights := l.LightKeys * l.LightTasks
	every := max(1, l.HeavyKeys*l.HeavyTasks/2/lights)
	published := make(map[string]int, lights) // id -> number of starts before
	var r result
	for starts := 0; len(r.waits) < lights; starts++ {
		if i := starts / every; starts%every == 0 && i < lights {
			id := fmt.Sprintf("light-%d", i)
			published[id] = starts
			m := &broker.Message{ID: id, Priority: 100, Key: fmt.Sprintf("light-%d", i%l.LightKeys), Body: []byte("{}")}
			if err := producers[i%l.Producers].Publish(ctx, queue.Name, m); err != nil {
				t.Fatalf("Publish: %v", err)
			}
		}
		d, err := s.Receive(ctx)
		if err != nil {
			t.Fatalf("Receive: %v", err)
		}
		if at, ok := published[d.Message().ID]; ok {
			r.waits = append(r.waits, starts-at)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatalf("Ack: %v", err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return r
}

// batch is the number of heavy tasks that a producer publishes at once.
const batch = 500

// publishHeavy publishes the tasks of all heavy keys, each key through all producers in turn.
func (l load) publishHeavy(ctx context.Context, t testing.TB, queue string, producers []broker.Broker) {
	t.Helper()
	var parts [][]broker.Outgoing
	for i := range l.HeavyKeys * l.HeavyTasks {
		if i%(batch*len(producers)) == 0 {
			parts = make([][]broker.Outgoing, len(producers))
		}
		at := i % len(producers)
		parts[at] = append(parts[at], broker.Outgoing{Queue: queue, Message: &broker.Message{
			ID: fmt.Sprintf("heavy-%d", i), Priority: 100, Key: fmt.Sprintf("heavy-%d", i/len(producers)%l.HeavyKeys), Body: []byte("{}"),
		}})
		if (i+1)%(batch*len(producers)) != 0 && i != l.HeavyKeys*l.HeavyTasks-1 {
			continue
		}
		for k, part := range parts {
			if len(part) == 0 {
				continue
			}
			if err := broker.PublishBatch(ctx, producers[k], part); err != nil {
				t.Fatalf("PublishBatch: %v", err)
			}
		}
	}
}
