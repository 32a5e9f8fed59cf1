package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultPollInterval is the Interval of a [Poll] that names none.
const DefaultPollInterval = 50 * time.Millisecond

// Poll has one set of workers take the tasks of several queues in strict order: one of a later queue only while the earlier ones
// have none. Tasks that run are not interrupted.
type Poll struct {
	// Queues are the queues, the most urgent first. Those that Config.Queues does not know have default settings there. Each belongs to
	// one Poll at most.
	Queues []string
	// Workers is how many handlers run at once, of all the queues together. 0: runtime.GOMAXPROCS. The prefetch of each queue is a
	// multiple of it, as ever.
	Workers int
	// Interval is how long an earlier queue must have had nothing before a task of a later one is taken, since its next task may be on
	// its way from the broker. 0: 50 ms.
	Interval time.Duration
	// Share keeps later queues from starving: of so many tasks one is taken from the queues in turn. 0: none is, and while the first
	// queue is never empty no other is served. At least 2.
	Share int
}

// completePolls checks the polls, and gives their queues their workers.
func (c *Config) completePolls(queues map[string]QueueConfig) error {
	var errs []error
	c.Polls = slices.Clone(c.Polls)
	polled := make(map[string]bool)
	for i := range c.Polls {
		p := &c.Polls[i]
		setDefault(&p.Workers, defaultWorkers())
		setDefault(&p.Interval, DefaultPollInterval)
		if len(p.Queues) == 0 || p.Workers < 0 || p.Interval < 0 || p.Share < 0 || p.Share == 1 {
			errs = append(errs, fmt.Errorf("config: Polls[%d]: %d queues, %d workers, an interval of %s, a share of %d", i, len(p.Queues),
				p.Workers, p.Interval, p.Share))
		}
		for _, name := range p.Queues {
			q := queues[name]
			switch {
			case polled[name]:
				errs = append(errs, fmt.Errorf("config: Polls: queue %q is polled twice", utf.Cut(name, 128)))
			case q.Workers != 0 || q.Autoscale != nil:
				errs = append(errs, fmt.Errorf("config: Queues: %q is polled: its workers are those of the poll", utf.Cut(name, 128)))
			}
			polled[name] = true
			q.Workers = p.Workers
			queues[name] = q
		}
	}
	return errors.Join(errs...)
}

// poll is the source of a team that several queues share. Each queue has a feeder, which offers one task at a time.
type poll struct {
	cfg    Poll
	team   *team
	queues []*queue // the most urgent first

	mu      sync.Mutex
	offers  []offer
	changed chan struct{} // closed when there is a new offer
	picks   int
	turn    int // of the queues, for the share
}

// offer is a queue's next task.
type offer struct {
	d      broker.Delivery // nil: none
	silent time.Time       // since when there is none
	taken  chan struct{}   // gets a value when d was taken
}

// there reports whether there is a task to be taken.
func (o *offer) there() bool { return o.d != nil && !isLost(o.d) }

func newPoll(cfg Poll, queues []*queue) *poll {
	p := &poll{cfg: cfg, queues: queues, offers: make([]offer, len(queues)), changed: make(chan struct{})}
	for i := range p.offers {
		p.offers[i].taken = make(chan struct{}, 1)
	}
	return p
}

// run starts the feeders.
func (p *poll) run(t *team) {
	p.team = t
	for i := range p.queues {
		p.offers[i].silent = time.Now()
		t.wg.Go(func() { p.feed(i) })
	}
}

// feed offers a queue's tasks until fetching ends.
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
			p.team.fail(err)
			return
		default:
			q.log(slog.LevelWarn, "cannot receive", slog.Any("error", err))
			q.wait(gap.Interval(failures))
			failures++
		}
	}
}

// offer waits until somebody has taken d. When the queue is paused, or the consumer stops, it gives d back; what the broker takes
// back is forgotten.
func (p *poll) offer(i int, d broker.Delivery) {
	q, o := p.queues[i], &p.offers[i]
	open := q.gate.context(q.fetch)
	p.mu.Lock()
	o.d = d
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	select {
	case <-o.taken:
		return
	case <-open.Done():
	case <-d.Lost():
	}
	p.mu.Lock()
	mine := o.d != nil
	o.d = nil
	p.mu.Unlock()
	if !mine {
		<-o.taken
		return
	}
	if isLost(d) {
		return
	}
	r, err := q.read(d, 0)
	if err != nil {
		q.buryUnreadable(d, err)
		return
	}
	r.unstarted()
}

// next implements source.
func (p *poll) next(ctx context.Context) (*queue, broker.Delivery, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		i, wait := p.choose(time.Now())
		if i >= 0 {
			o := &p.offers[i]
			d := o.d
			o.d, o.silent = nil, time.Now()
			o.taken <- struct{}{}
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

// choose returns the queue whose offer is next, or -1 and for how long to wait for a new offer at most.
func (p *poll) choose(now time.Time) (i int, wait time.Duration) {
	if p.cfg.Share > 0 && p.picks%p.cfg.Share == p.cfg.Share-1 {
		for k := range p.offers {
			i := (p.turn + 1 + k) % len(p.offers)
			if p.offers[i].there() {
				p.turn = i
				return i, 0
			}
		}
	}
	for i := range p.offers {
		o := &p.offers[i]
		if o.there() {
			return i, 0
		}
		gate := &p.queues[i].gate
		if gate.shut.Load() {
			continue
		}
		silent := o.silent
		if opened := time.Unix(0, gate.since.Load()); opened.After(silent) { // what it did while it was paused says nothing
			silent = opened
		}
		if wait := p.cfg.Interval - now.Sub(silent); wait > 0 {
			return -1, wait
		}
	}
	return -1, time.Hour
}
