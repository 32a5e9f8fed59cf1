package memevents

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// record is a kept event with the time at which the bus received it. All listeners share it.
type record struct {
	event *events.Event
	taken time.Time
}

// log holds the kept events of all views, the newest at the end. Each stream reads it at its own
// position. A further stream therefore costs no memory, and a slow one delays no other.
type log struct {
	keep events.Retention

	mu      sync.Mutex
	records []record
	first   uint64        // number of records[0]; records are numbered from 0
	more    chan struct{} // closed when a record is added; nil while no stream waits for it
}

// add appends e, removes records beyond the retention, and wakes waiting streams. It takes l.mu.
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

// trim removes the records that at the time now are older than Age, or exceed Max, and advances
// l.first. It clears them, so that the collector frees the events at once. append replaces the
// array behind them later. Call it with l.mu held.
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

	next    uint64 // number of the record that is read next; next and dropped are guarded by log.mu
	dropped uint64
}

// Replay implements [events.Retainer]: it returns a stream of kept events from since on, and then
// of new ones. It removes expired events first, and does not block. A slow stream that comes to a
// removed event continues with the oldest kept one and counts the missed events.
//
// Returns ErrNotRetained if the bus keeps no events, ErrClosed after Close of the view, and ctx's
// error if ctx has ended. It takes h.mu and log.mu.
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

// Retention implements [events.RetentionTeller]: it returns Config.Retain with its defaults, or the
// zero value if the bus keeps no events.
func (b *Bus) Retention() events.Retention {
	if b.h.log == nil {
		return events.Retention{}
	}
	return b.h.log.keep
}

// Receive implements [events.Subscription]: it waits for the next kept event that matches and
// returns a copy. Returns ErrClosed after Close of the stream or its view, and ctx's error when ctx
// ends, also if events are left. It takes log.mu, but not while it waits.
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
			unshare(&e)
			return e, nil
		}
		select {
		case <-more:
		case <-r.done:
		case <-ctx.Done():
		}
	}
}

// take returns the next event from r.since on that matches, and advances the position of r. Events
// that were removed before they were read are added to r.dropped. If no event is left it returns
// nil and a channel that is closed when a record is added. It takes log.mu.
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

// Dropped implements [events.DropCounter]: it counts the events that were removed before the
// stream came to them, including those that its filter does not match. It takes log.mu.
func (r *replay) Dropped() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.dropped
}

// Close implements [events.Subscription]: it ends the stream and removes it from its view. It
// returns nil. Further calls do nothing. It takes the hub's mu.
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
