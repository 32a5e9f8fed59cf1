package intake

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Order says in which order workers take the messages of several queues. The first queue is the
// most urgent.
type Order struct {
	// Interval is the time for which an earlier queue must be empty before a message of a later queue
	// is taken.
	Interval time.Duration
	// Share: of each Share messages, one is taken from the queues in rotation. 0: none.
	Share int
}

// poll is the source of workers that several queues share. A goroutine per queue, its feeder,
// offers one message at a time.
type poll struct {
	order  Order
	set    *Workers
	queues []*Queue // the most urgent first

	mu      sync.Mutex
	offers  []offer
	changed chan struct{} // closed and replaced when a queue offers a task
	picks   int
	turn    int // index of the queue that was last served by Share
}

// offer holds the next task of a queue.
type offer struct {
	d        broker.Delivery // nil: the queue offers no task
	silent   time.Time       // since when the queue offers no task
	accepted chan struct{}   // receives a value when a worker has taken d
}

// available reports whether the offer has a task that the broker has not taken back. Call it with
// poll.mu held.
func (o *offer) available() bool { return o.d != nil && !Lost(o.d) }

// newPoll returns a poll of queues, which the caller has sorted, the most urgent first. It keeps
// the slice. order is the rule by which a free worker selects a queue. It starts nothing; call
// run.
func newPoll(order Order, queues []*Queue) *poll {
	p := &poll{order: order, queues: queues, offers: make([]offer, len(queues)), changed: make(chan struct{})}
	for i := range p.offers {
		p.offers[i].accepted = make(chan struct{}, 1)
	}
	return p
}

// run starts a feeder goroutine for each queue, in the wait group of t. They end when fetching
// stops. It takes no lock: call it before the workers of t start.
func (p *poll) run(t *Workers) {
	p.set = t
	for i := range p.queues {
		p.offers[i].silent = time.Now()
		t.wg.Go(func() { p.feed(i) })
	}
}

// feed receives the tasks of the queue with index i and offers them one by one. It blocks until
// fetching stops. After [broker.ErrClosed] it ends the consumer and returns. Any other error is
// logged; feed waits, longer each time, and tries again.
func (p *poll) feed(i int) {
	q := p.queues[i]
	var gap task.Backoff
	for failures := 0; q.fetch.Err() == nil; {
		_, d, err := q.next(q.fetch)
		switch {
		case err == nil:
			failures = 0
			p.offer(i, d)
		case q.fetch.Err() != nil:
		case errors.Is(err, broker.ErrClosed):
			p.set.fail(err)
			return
		default:
			q.cfg.Log(slog.LevelWarn, "receiving from the broker failed; it is repeated", slog.Any("error", err))
			wake.Sleep(q.fetch, gap.Interval(failures))
			failures++
		}
	}
}

// offer offers the delivery d of the queue with index i to the workers and blocks until a worker
// has taken it. If the queue is paused or the consumer stops first, it withdraws the offer and
// gives d back on another goroutine. If the broker takes d back, it only withdraws the offer. It
// takes p.mu, but not while it waits.
func (p *poll) offer(i int, d broker.Delivery) {
	q, o := p.queues[i], &p.offers[i]
	open := q.gate.context(q.fetch)
	p.mu.Lock()
	o.d = d
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	select {
	case <-o.accepted:
		return
	case <-open.Done():
	case <-d.Lost():
	}
	p.mu.Lock()
	mine := o.d != nil
	o.d = nil
	p.mu.Unlock()
	if !mine {
		<-o.accepted
		return
	}
	if Lost(d) {
		return
	}
	q.cfg.Tasks.GiveBackLater(d)
}

// next blocks until a queue offers a task that may be taken now, and returns it with its queue.
// choose selects the task. It tells the feeder of the queue that the task was taken. Returns the
// error of ctx if that ends while no task may be taken. It takes p.mu, but not while it waits. It
// is the source of the workers of several queues.
func (p *poll) next(ctx context.Context) (*Queue, broker.Delivery, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		i, wait := p.choose(time.Now())
		if i >= 0 {
			o := &p.offers[i]
			d := o.d
			o.d, o.silent = nil, time.Now()
			o.accepted <- struct{}{}
			p.picks++
			p.mu.Unlock()
			return p.queues[i], d, nil
		}
		changed := p.changed
		p.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// choose returns the index of the queue whose task is taken next: the first queue with a task. A
// later queue is chosen only if each earlier one has been empty for Interval. Paused queues do not
// count, and the time of their pause does not count as empty.
//
// Of each Share tasks one is taken in rotation instead: from the next queue with a task after
// p.turn, which choose moves.
//
// If no task may be taken, it returns -1 and the longest time to wait for a change. Call it with
// p.mu held.
func (p *poll) choose(now time.Time) (i int, wait time.Duration) {
	if p.order.Share > 0 && p.picks%p.order.Share == p.order.Share-1 {
		for k := range p.offers {
			i := (p.turn + 1 + k) % len(p.offers)
			if p.offers[i].available() {
				p.turn = i
				return i, 0
			}
		}
	}
	for i := range p.offers {
		o := &p.offers[i]
		if o.available() {
			return i, 0
		}
		gate := &p.queues[i].gate
		if gate.shut.Load() {
			continue
		}
		silent := o.silent
		// the queue delivered no tasks while it was paused
		if opened := time.Unix(0, gate.since.Load()); opened.After(silent) {
			silent = opened
		}
		if wait := p.order.Interval - now.Sub(silent); wait > 0 {
			return -1, wait
		}
	}
	return -1, time.Hour
}
