package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// How many tasks SubmitAll hands to the broker at once: few at first, so that the broker has work soon, then more, since at
// the end of each batch it has to wait for the last confirms. While a batch is on its way the next one is prepared.
const (
	firstBatch   = 500
	largestBatch = 8000
)

// SubmitAll submits many tasks, pipelined, in the order of calls. It returns a handle for each confirmed task, nil for the
// others, and, if there are any others, a [*broker.BatchError] with the reason of each. Without a deadline in ctx, Timeout
// bounds each batch of up to 8,000 tasks, not the whole. Those of a batch that have conditions become jobs in one step. Those
// with a unique key ([task.WithUnique]) are sent after the others.
func (p *Producer) SubmitAll(ctx context.Context, calls []task.Call) ([]task.Pending, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	if err := p.enter(); err != nil {
		return make([]task.Pending, len(calls)), &broker.BatchError{Errs: broker.BatchErrors(err, len(calls))}
	}
	defer p.inFlight.Done()
	if err := p.declareWithin(ctx); err != nil {
		return make([]task.Pending, len(calls)), &broker.BatchError{Errs: broker.BatchErrors(err, len(calls))}
	}
	b := batch{p: p, pending: make([]task.Pending, len(calls)), errs: make([]error, len(calls))}
	var sent chan struct{} // closed when the batch before this one is settled
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

func (p *Producer) declareWithin(ctx context.Context) error {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	return p.declareQueues(ctx)
}

type batch struct {
	p       *Producer
	pending []task.Pending
	errs    []error
}

type part struct {
	index  []int // in the caller's slice
	staged []*staged
}

func (b *batch) prepare(ctx context.Context, calls []task.Call, begin, end int) part {
	ctx, cancel := b.p.bound(ctx)
	defer cancel()
	pt := part{index: make([]int, 0, end-begin), staged: make([]*staged, 0, end-begin)}
	for i := begin; i < end; i++ {
		s := b.p.blank()
		if err := b.p.prepare(ctx, &calls[i], s); err != nil {
			b.errs[i] = err
			b.p.reuse(s)
			continue
		}
		pt.index = append(pt.index, i)
		pt.staged = append(pt.staged, s)
	}
	return pt
}

func (b *batch) publish(ctx context.Context, pt part) {
	if len(pt.staged) == 0 {
		return
	}
	ctx, cancel := b.p.bound(ctx)
	defer cancel()
	errs := b.p.publishAll(ctx, pt.staged)
	at := time.Now() // of all of them: a look at the clock for each would be a good part of what its event costs
	for i, s := range pt.staged {
		if errs[i] != nil {
			s.withdraw(errs[i])
			b.errs[pt.index[i]] = fmt.Errorf("swarmiji: submit %s %s: %w", s.envelope.Name, s.envelope.ID, errs[i])
		} else if s.first != "" {
			b.pending[pt.index[i]] = b.p.answered(s)
		} else {
			b.p.confirmed(s, at)
			b.pending[pt.index[i]] = s.pending
		}
		b.p.reuse(s)
	}
}
