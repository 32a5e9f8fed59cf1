package membroker

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// PublishBatch implements [broker.BatchPublisher]. Consecutive messages of one queue are stored
// under one lock of the queue. It waits for a connection, and while a limited queue is full; it
// holds no lock while it waits.
//
// Messages that fail do not hinder the others: each has its own error, one of those of PublishAt,
// in the BatchError. If ctx ends before a connection exists, all fail. It returns nil if none
// fails.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(ms))
		}
		errs[i] = err
	}
	var (
		q   *queue // the queue whose mutex is held, or nil
		now time.Time
	)
	release := func() {
		if q != nil {
			q.dispatch()
			q.admit()
			q.unlock()
			q = nil
		}
	}
	ready := b.ready(ctx)
	for i := range ms {
		o := &ms[i]
		err := b.s.check(o.Message)
		if err == nil {
			err = ready
		}
		if err == nil && (q == nil || q.name != o.Queue) {
			release()
			var next *queue
			if next, err = b.s.queue(o.Queue); err == nil {
				q = next
				q.mu.Lock()
				now = time.Now() // once for all of them, since reading the clock is slow
			}
		}
		if err == nil && q.full() {
			q.dispatch()
			if err = q.waitForRoom(ctx); err != nil {
				q = nil
			}
			now = time.Now()
		}
		if err != nil {
			fail(i, err)
			continue
		}
		q.put(o.Message, o.At, now)
	}
	release()
	if errs != nil {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}
