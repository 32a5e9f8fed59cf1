package redisevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	pageSize = 16 // messages read at once, each of about 20 KB, at most 256 KB with the usual Batch
	// pollInterval is the time after which an idle stream is read without a notification.
	// Notifications are lost with a connection, and the loss may show late.
	pollInterval = 5 * time.Second
)

// replay is a subscription to kept events and then to new ones. Receive reads the server's stream
// page by page and remembers the position. A lost connection therefore loses no event, and a slow
// reader is only late. Notifications on a channel save reading an unchanged stream.
type replay struct {
	bus     *Bus
	filter  events.Filter
	conn    *redisconn.Listener
	ctx     context.Context // ends with the subscription
	stop    context.CancelFunc
	added   wake.Signal // notified when the stream may have new entries
	dropped atomic.Uint64

	reading chan struct{}  // held by the Receive that reads; it guards the fields below
	next    position       // of the next message
	ready   []events.Event // read and not yet received
	total   uint64         // number of events kept up to the last message read
	known   bool           // total is valid
}

// Replay implements [events.Retainer]: it returns a stream of kept events from since on, and then
// of new ones. The zero Filter and time select all kept events. since is compared with the server's
// clock. Replay blocks until the server has confirmed the subscription to notifications. It reads
// no events: Receive does. It takes b.mu, but not while it waits.
//
// If ctx has already ended, Replay returns ctx's error unwrapped. Without a server it waits until
// ctx ends. A refusal of the credentials or of the channel is returned at once. Both are
// [events.ErrUnavailable]. Returns ErrNotRetained if the bus keeps no events, ErrClosed after
// Close.
func (b *Bus) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	r := &replay{
		bus:     b,
		filter:  f,
		added:   wake.New(),
		reading: make(chan struct{}, 1),
		next:    positionAt(since),
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.conn = b.conn.Listen(redisconn.ListenerConfig{
		Message: func(string, string) { r.added.Notify() },
		// events may have been added while the connection was lost
		Subscribed: func(string) { r.added.Notify() },
	})
	err := b.add(r)
	switch {
	case err != nil:
	case !b.cfg.Retain.On():
		err = events.ErrNotRetained
	default:
		err = failure("replay", r.conn.Subscribe(ctx, b.names.added))
	}
	if err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

// Retention implements [events.RetentionTeller]: it returns Config.Retain with its defaults.
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription]: it returns the next event and reads from the server
// if needed. It keeps trying after a lost connection until ctx ends. One call reads at a time,
// and others wait for it. Returns [events.ErrUnavailable] if the server refuses the read, ctx's
// error, or ErrClosed after Close.
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	select {
	case r.reading <- struct{}{}:
	case <-ctx.Done():
		return events.Event{}, ctx.Err()
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	}
	defer func() { <-r.reading }()
	for len(r.ready) == 0 || r.ctx.Err() != nil {
		if err := r.fill(ctx); err != nil {
			return events.Event{}, err
		}
	}
	e := r.ready[0]
	r.ready[0] = events.Event{} // frees the memory of the event
	r.ready = r.ready[1:]
	return e, nil
}

// fill reads the next page with entries, and waits for new entries if the stream has no more. It
// repeats a failed read with a growing delay until ctx or the subscription ends. Returns
// ErrUnavailable if the server refuses the read, ctx's error, or ErrClosed if the subscription
// ends. Call it with r.reading held.
func (r *replay) fill(ctx context.Context) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	for attempt := 0; ; {
		if r.ctx.Err() != nil {
			return events.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		select { // the read below sees the entries notified so far
		case <-r.added:
		default:
		}
		n, err := r.read(both)
		switch {
		case errors.Is(err, redisconn.ErrRefused), errors.Is(err, redisconn.ErrAccess):
			return failure("replay", err)
		case err != nil:
			r.bus.pause(both, attempt)
			attempt++
			continue
		case n > 0:
			return nil
		}
		attempt = 0
		r.added.Wait(both, pollInterval)
	}
}

// read reads the next page and returns its number of entries. It adds their matching events to
// r.ready and advances r.next past each entry, so that it may be repeated after an error. It waits
// for the server. Returns the error of the connection or the server, or errEntry. Call it with
// r.reading held.
func (r *replay) read(ctx context.Context) (int, error) {
	answer, err := r.bus.conn.Do(ctx, "XRANGE", r.bus.names.kept, r.next.String(), "+", "COUNT", pageSize)
	if err != nil {
		return 0, err
	}
	entries, _ := answer.([]any)
	for _, e := range entries {
		if err := r.addEntry(e); err != nil {
			return 0, err
		}
	}
	return len(entries), nil
}

var errEntry = fmt.Errorf("%w: the server's answer is not a list of entries", redisconn.ErrRefused)

// addEntry adds the matching events of an entry to r.ready, advances the position and counts
// removed events (count). It counts an entry that is not a valid list of events as one dropped
// event, and the next entry is then not compared. Returns errEntry if the answer has another form.
// Call it with r.reading held.
func (r *replay) addEntry(entry any) error {
	pair, _ := entry.([]any)
	if len(pair) != 2 {
		return errEntry
	}
	id, _ := pair[0].(string)
	at, ok := parsePosition(id)
	if !ok {
		return errEntry
	}
	r.next = at.after()
	total, message := fields(pair[1])
	es, err := events.Decode([]byte(message))
	if err != nil {
		r.dropped.Add(1)
		r.known = false
		return nil //nolint:nilerr // a stranger's entry is counted and passed over
	}
	r.count(total, uint64(len(es)))
	for i := range es {
		if r.filter.Match(&es[i]) {
			r.ready = append(r.ready, es[i])
		}
	}
	return nil
}

// fields returns the fields s and e of an entry: the number of events kept so far, 0 if unknown,
// and the list of events.
func fields(list any) (total uint64, message string) {
	values, _ := list.([]any)
	for i := 0; i+1 < len(values); i += 2 {
		name, _ := values[i].(string)
		value, _ := values[i+1].(string)
		switch name {
		case "s":
			total, _ = strconv.ParseUint(value, 10, 64) // 0: unknown
		case "e":
			message = value
		}
	}
	return total, message
}

// count compares total, the counter of an entry with n events, with the last known one, and adds
// the events removed in between to r.dropped. It logs a warning if there are any. The counter
// starts again after the stream expired or was deleted. A total of 0 means that it is unknown: the
// next entry is not compared. Call it with r.reading held.
func (r *replay) count(total, n uint64) {
	if missed := total - n - r.total; r.known && total >= n+r.total && missed > 0 {
		r.dropped.Add(missed)
		r.bus.cfg.Logger.LogAttrs(r.ctx, slog.LevelWarn, "a reader of kept events is too slow; events were removed before it read them",
			slog.Uint64("missed", missed))
	}
	r.total, r.known = total, total > 0
}

// Dropped implements [events.DropCounter]: it counts events that were removed before they were
// read, including those that the filter does not match, and entries without events.
func (r *replay) Dropped() uint64 { return r.dropped.Load() }

// Close implements [events.Subscription]: it ends the subscription, so that every Receive returns
// ErrClosed, and its connection. It does not block and returns nil. It takes bus.mu.
func (r *replay) Close(context.Context) error {
	r.end()
	return nil
}

// end ends the subscription, closes its connection and removes it from the bus. Every Receive then
// returns ErrClosed. It does not block. It takes bus.mu.
func (r *replay) end() {
	r.stop()
	r.conn.Close()
	r.bus.remove(r)
}

// position is the id of an existing or possible entry of a stream.
type position struct{ ms, seq uint64 }

// positionAt returns the first position at time t. The zero time is before all entries.
func positionAt(t time.Time) position {
	return position{ms: uint64(max(t.UnixMilli(), 0))}
}

// parsePosition returns the position in the id of an entry. It returns false if id is not one.
func parsePosition(id string) (position, bool) {
	ms, seq, ok := strings.Cut(id, "-")
	var p position
	var err1, err2 error
	p.ms, err1 = strconv.ParseUint(ms, 10, 64)
	p.seq, err2 = strconv.ParseUint(seq, 10, 64)
	return p, ok && err1 == nil && err2 == nil
}

// after returns the position that follows p directly.
func (p position) after() position {
	if p.seq++; p.seq == 0 {
		p.ms++
	}
	return p
}

// String returns the id of the entry as Redis writes it: ms and seq with a '-' between them.
func (p position) String() string {
	return strconv.FormatUint(p.ms, 10) + "-" + strconv.FormatUint(p.seq, 10)
}
