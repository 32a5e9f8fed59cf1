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
	pageSize = 16 // messages that are read at once, each of some 20 KB, at most 256 KB with the usual Batch
	// lookEvery is how often a quiet stream is read although nobody told that there is news. Telling is lost with a
	// connection, of which the end may show late.
	lookEvery = 5 * time.Second
)

// replay is a subscription to what is kept, then to what comes. It reads the server's stream page by page, when its own
// reader asks for more, and knows where it is: so a lost connection costs nothing, and neither does a slow reader, who is
// only ever behind. Being told of news on a channel keeps it from asking in vain.
type replay struct {
	bus     *Bus
	filter  events.Filter
	conn    *redisconn.Listener
	ctx     context.Context // ends with the subscription
	stop    context.CancelFunc
	news    wake.Signal // holds a token when there may be more
	dropped atomic.Uint64

	turn  chan struct{}  // held by the Receive that reads; the fields below are its own
	next  position       // of the next message
	ready []events.Event // read and not yet received
	total uint64         // events kept up to the last message read
	known bool           // total is
}

// Replay implements [events.Retainer]; the zero Filter and time give all that is kept. The server's clock says when an
// event was taken. Without a server it waits until ctx ends; a refusal of the credentials or of the channel is returned at once. Both are
// [events.ErrUnavailable].
func (b *Bus) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	r := &replay{
		bus:    b,
		filter: f,
		news:   wake.New(),
		turn:   make(chan struct{}, 1),
		next:   positionAt(since),
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.conn = b.conn.Listen(redisconn.ListenerConfig{
		Message:    func(string, string) { r.news.Notify() },
		Subscribed: func(string) { r.news.Notify() }, // events of the time without a connection were missed
	})
	err := b.add(r)
	switch {
	case err != nil:
	case !b.cfg.Retain.On():
		err = events.ErrNotRetained
	default:
		err = failure("replay", r.conn.Subscribe(ctx, b.names.news))
	}
	if err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

// Retention implements [events.RetentionTeller].
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription]. It reads from the server when it has to, and waits for that through lost
// connections.
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return events.Event{}, ctx.Err()
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	}
	defer func() { <-r.turn }()
	for len(r.ready) == 0 || r.ctx.Err() != nil {
		if err := r.fill(ctx); err != nil {
			return events.Event{}, err
		}
	}
	e := r.ready[0]
	r.ready[0] = events.Event{} // so that the collector may have what it points to
	r.ready = r.ready[1:]
	return e, nil
}

// fill reads the next page, and waits for one when there is none.
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
		select { // what it was told until now, the reading below will see
		case <-r.news:
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
		r.news.Wait(both, lookEvery)
	}
}

// read takes the next page and returns how many messages were in it. Reading changes nothing, so it may be repeated.
func (r *replay) read(ctx context.Context) (int, error) {
	answer, err := r.bus.conn.Do(ctx, "XRANGE", r.bus.names.kept, r.next.String(), "+", "COUNT", pageSize)
	if err != nil {
		return 0, err
	}
	entries, _ := answer.([]any)
	for _, e := range entries {
		if err := r.take(e); err != nil {
			return 0, err
		}
	}
	return len(entries), nil
}

var errEntry = fmt.Errorf("%w: the server's answer is no list of entries", redisconn.ErrRefused)

// take makes ready what the subscriber wants of an entry. One that holds no events counts as one dropped event.
func (r *replay) take(entry any) error {
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

// fields returns what is of interest in an entry.
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

// count finds out how many events were removed before this reader came to them. The count begins anew with a stream that
// has expired or was deleted.
func (r *replay) count(total, n uint64) {
	if missed := total - n - r.total; r.known && total >= n+r.total && missed > 0 {
		r.dropped.Add(missed)
		r.bus.cfg.Logger.LogAttrs(r.ctx, slog.LevelWarn, "a reader of kept events is slower than they are removed",
			slog.Uint64("missed", missed))
	}
	r.total, r.known = total, total > 0
}

// Dropped implements [events.DropCounter]: events that were removed before they were read, those that the filter holds back
// included, and messages that hold no events.
func (r *replay) Dropped() uint64 { return r.dropped.Load() }

// Close implements [events.Subscription]. It waits for nothing.
func (r *replay) Close(context.Context) error {
	r.end()
	return nil
}

func (r *replay) end() {
	r.stop()
	r.conn.Close()
	r.bus.remove(r)
}

// position is a place in a stream: the id of an entry that is or may be there.
type position struct{ ms, seq uint64 }

// positionAt is the first place of a time; the zero time is before all.
func positionAt(t time.Time) position {
	return position{ms: uint64(max(t.UnixMilli(), 0))}
}

func parsePosition(id string) (position, bool) {
	ms, seq, ok := strings.Cut(id, "-")
	var p position
	var err1, err2 error
	p.ms, err1 = strconv.ParseUint(ms, 10, 64)
	p.seq, err2 = strconv.ParseUint(seq, 10, 64)
	return p, ok && err1 == nil && err2 == nil
}

func (p position) after() position {
	if p.seq++; p.seq == 0 {
		p.ms++
	}
	return p
}

func (p position) String() string {
	return strconv.FormatUint(p.ms, 10) + "-" + strconv.FormatUint(p.seq, 10)
}
