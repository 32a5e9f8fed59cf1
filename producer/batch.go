package producer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// Sizes of the batches that SubmitAll publishes. The first one is small, so that the broker starts
// early. Later ones are larger, since each batch ends with a wait for its confirms. The next batch
// is prepared while one is published.
const (
	firstBatch   = 500
	largestBatch = 8000
)

// SubmitAll submits many tasks, pipelined, in the order of calls. It blocks until each is confirmed
// or has failed. It returns a handle for each confirmed task and nil for the others. If there are
// others, the error is a [*broker.BatchError] with the error of each. Without calls it returns nil,
// nil.
//
// Without a deadline in ctx, Timeout limits each batch of up to 8,000 tasks, not the whole call.
// The tasks of a batch with conditions become jobs in one step. Tasks with a unique key
// ([task.WithUnique]) are sent after the others.
func (p *Producer) SubmitAll(ctx context.Context, calls []task.Call) ([]task.Pending, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	if err := p.begin(); err != nil {
		return make([]task.Pending, len(calls)), &broker.BatchError{Errs: broker.BatchErrors(err, len(calls))}
	}
	defer p.inFlight.Done()
	if err := p.declareWithin(ctx); err != nil {
		return make([]task.Pending, len(calls)), &broker.BatchError{Errs: broker.BatchErrors(err, len(calls))}
	}
	b := batch{p: p, pending: make([]task.Pending, len(calls)), errs: make([]error, len(calls))}
	var sent chan struct{} // closed when the previous batch is confirmed or has failed
	for begin, size := 0, firstBatch; begin < len(calls); begin, size = begin+size, min(2*size, largestBatch) {
		part := b.prepare(ctx, calls, begin, min(begin+size, len(calls)))
		if sent != nil {
			<-sent
		}
		sent = make(chan struct{})
		go func() {
			defer close(sent)
			b.publish(ctx, part)
		}()
	}
	if sent != nil {
		<-sent
	}
	for _, err := range b.errs {
		if err != nil {
			return b.pending, &broker.BatchError{Errs: b.errs}
		}
	}
	return b.pending, nil
}

// declareWithin declares the queues of the producer, see declareQueues, within ctx or the default
// timeout.
func (p *Producer) declareWithin(ctx context.Context) error {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	return p.declareQueues(ctx)
}

// batch is the state of one SubmitAll. The slices have one element for each call.
type batch struct {
	p       *Producer
	pending []task.Pending
	errs    []error
}

// part is the prepared tasks of one publish.
type part struct {
	index  []int // indices in the caller's slice
	staged []*staged
}

// prepare prepares the tasks of calls[begin:end] and returns those that can be sent. It publishes
// nothing. The error of each other task is stored in b.errs. It blocks within ctx or the default
// timeout, for example until results can be received.
func (b *batch) prepare(ctx context.Context, calls []task.Call, begin, end int) part {
	ctx, cancel := b.p.withTimeout(ctx)
	defer cancel()
	pt := part{index: make([]int, 0, end-begin), staged: make([]*staged, 0, end-begin)}
	for i := begin; i < end; i++ {
		s := b.p.newStaged()
		if err := b.p.prepare(ctx, &calls[i], s); err != nil {
			b.errs[i] = err
			b.p.recycle(s)
			continue
		}
		pt.index = append(pt.index, i)
		pt.staged = append(pt.staged, s)
	}
	return pt
}

// publish publishes the tasks of pt, blocks until each is confirmed or has failed, and stores the
// handle or the error of each in b. It waits within ctx or the default timeout.
//
// A confirmed task is counted and its event sent. A failed task loses its waiter, see withdraw. A
// unique task whose key an earlier submission has gets the handle of that task. Each staged task is
// recycled: do not use pt any more.
func (b *batch) publish(ctx context.Context, pt part) {
	if len(pt.staged) == 0 {
		return
	}
	ctx, cancel := b.p.withTimeout(ctx)
	defer cancel()
	errs := b.p.publishAll(ctx, pt.staged)
	// one time for all: reading the clock for each is a large part of the cost of an event
	at := time.Now()
	for i, s := range pt.staged {
		if errs[i] != nil {
			s.withdraw(errs[i])
			b.errs[pt.index[i]] = submitError(s.envelope.Name+" "+string(s.envelope.ID), errs[i])
		} else if s.first != "" {
			b.pending[pt.index[i]] = b.p.duplicateOf(s)
		} else {
			b.p.confirmed(s, at)
			b.pending[pt.index[i]] = s.pending
		}
		b.p.recycle(s)
	}
}
