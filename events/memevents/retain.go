package memevents

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// record is a kept event. Listeners share it.
type record struct {
	event *events.Event
	taken time.Time
}

// log is what the views keep together, with the newest at its end. Streams read it at their own positions, so that one
// more costs no memory, and one that is not read costs nobody anything.
type log struct {
	keep events.Retention

	mu      sync.Mutex
	records []record
	first   uint64        // the number of records[0]; they are numbered from 0
	more    chan struct{} // closed when a record is added; nil while nobody waits for it
}

// add keeps e, and forgets what is too old or too much.
func (l *log) add(e *events.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.records = append(l.records, record{e, now})
	l.trim(now)
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// trim forgets what need not be kept. What is forgotten stays in the array behind the slice until append makes another
// one, at the latest when as many have come again; it is cleared here, so that the events themselves can go at once.
func (l *log) trim(now time.Time) {
	n := max(len(l.records)-l.keep.Max, 0)
	for n < len(l.records) && now.Sub(l.records[n].taken) > l.keep.Age {
		n++
	}
	clear(l.records[:n])
	l.records = l.records[n:]
	l.first += uint64(n)
}

// replay is a stream of the log. It implements events.Subscription and events.DropCounter.
type replay struct {
	bus    *Bus
	log    *log
	filter events.Filter
	since  time.Time
	done   chan struct{} // closed under the hub's mu

	next    uint64 // the record that is read next; guarded by log.mu, as is dropped
	dropped uint64
}

// Replay implements [events.Retainer]. A stream that is read so late that what it comes to is not kept any more goes on
// with the oldest that is, and counts what it missed.
func (b *Bus) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	switch {
	case b.closed.Load():
		return nil, events.ErrClosed
	case b.h.log == nil:
		return nil, events.ErrNotRetained
	}
	f.Types = slices.Clone(f.Types)
	r := &replay{bus: b, log: b.h.log, filter: f, since: since, done: make(chan struct{})}
	r.log.mu.Lock()
	r.log.trim(time.Now())
	r.next = r.log.first
	r.log.mu.Unlock()
	b.replays = append(b.replays, r)
	return r, nil
}

// Retention implements [events.RetentionTeller].
func (b *Bus) Retention() events.Retention {
	if b.h.log == nil {
		return events.Retention{}
	}
	return b.h.log.keep
}

// Receive implements [events.Subscription].
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	for {
		select {
		case <-r.done:
			return events.Event{}, events.ErrClosed
		default:
		}
		if err := ctx.Err(); err != nil {
			return events.Event{}, err
		}
		shared, more := r.take()
		if shared != nil {
			e := *shared
			own(&e)
			return e, nil
		}
		select {
		case <-more:
		case <-r.done:
		case <-ctx.Done():
		}
	}
}

// take returns the next event that the stream wants, or what tells that there are more.
func (r *replay) take() (*events.Event, <-chan struct{}) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.next < l.first {
		r.dropped += l.first - r.next
		r.next = l.first
	}
	for r.next-l.first < uint64(len(l.records)) {
		rec := l.records[r.next-l.first]
		r.next++
		if r.filter.Match(rec.event) && !rec.taken.Before(r.since) {
			return rec.event, nil
		}
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return nil, l.more
}

// Dropped implements [events.DropCounter]: the events, those that the filter holds back included, that were not kept any
// more when the stream came to them.
func (r *replay) Dropped() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.dropped
}

// Close implements [events.Subscription].
func (r *replay) Close(context.Context) error {
	h := r.bus.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(r.bus.replays, r); i >= 0 {
		r.bus.replays = slices.Delete(r.bus.replays, i, i+1)
		close(r.done)
	}
	return nil
}

var (
	_ events.Retainer     = (*Bus)(nil)
	_ events.Subscription = (*replay)(nil)
	_ events.DropCounter  = (*replay)(nil)
)
