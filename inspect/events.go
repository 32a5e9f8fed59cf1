package inspect

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// ringSize is the number of events that Run keeps.
const ringSize = 10_000

// ring holds the newest events. Safe for concurrent use.
type ring struct {
	id string // of this ring: cursors of another process are not valid here

	mu     sync.Mutex
	events []Event       // event seq is at seq % ringSize
	next   uint64        // seq of the next event
	more   chan struct{} // closed and replaced when an event comes
	closed bool
}

func newRing() *ring {
	return &ring{id: fmt.Sprintf("%x", time.Now().UnixNano()), more: make(chan struct{})}
}

// fill adds the events of a bus until ctx ends, and then returns nil. It subscribes again after an
// error.
func (r *ring) fill(ctx context.Context, bus events.EventBus) error {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := r.receive(ctx, bus, func() { attempt = 0 })
		if ctx.Err() != nil {
			return nil
		}
		slog.DebugContext(ctx, "inspect: the subscription to events failed; trying again", slog.Any("error", err))
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return nil
		}
	}
}

func (r *ring) receive(ctx context.Context, bus events.EventBus, good func()) error {
	sub, err := bus.Subscribe(ctx, events.Filter{})
	if err != nil {
		return err
	}
	defer closeSub(ctx, sub)
	for {
		e, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		good()
		r.add(eventOf(&e))
	}
}

// eventOf returns an event for a list.
func eventOf(e *events.Event) Event {
	fields := maps.Clone(e.Fields)
	events.DropOriginal(fields) // GetTask has it, for callers with that permission
	return Event{
		At: e.Time, Type: e.Type, Node: e.NodeID, Task: e.TaskID, Name: e.Name, Queue: e.Queue, Args: e.Args, Result: e.Result, Error: e.Exception,
		Retry: e.Retry, Run: Duration(e.Runtime), Fields: fields,
	}
}

func (r *ring) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Seq = r.next
	if len(r.events) < ringSize {
		r.events = append(r.events, e)
	} else {
		r.events[r.next%ringSize] = e
	}
	r.next++
	close(r.more)
	r.more = make(chan struct{})
}

// close wakes the waiting queries for good.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		close(r.more)
	}
}

// after returns the matching events from seq on, at most n, and the seq after those that it looked
// at. lost reports that events from seq on are gone. more is closed when another event comes.
func (r *ring) after(seq uint64, n int, match func(*Event) bool) (es []Event, next uint64, lost bool, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if oldest := r.next - uint64(len(r.events)); seq < oldest {
		seq, lost = oldest, true
	}
	for ; seq < r.next && len(es) < n; seq++ {
		if e := &r.events[seq%ringSize]; match(e) {
			es = append(es, *e)
		}
	}
	return es, seq, lost, r.more
}

// present returns the seq of the next event.
func (r *ring) present() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// ListEvents implements [Events]. It needs [Local.Run].
func (l *Local) ListEvents(ctx context.Context, q EventQuery) (EventPage, error) {
	page := EventPage{Events: []Event{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	if q.Wait < 0 || q.Wait > MaxWait {
		return page, errorf(CodeInvalid, "the wait is %v, want 0 to %v", q.Wait, MaxWait)
	}
	l.mu.Lock()
	r := l.ring
	l.mu.Unlock()
	if r == nil {
		return page, missing("events", needRun)
	}
	cursor := func(seq uint64) string { return fmt.Sprintf("%s.%d", r.id, seq) }
	if q.Cursor == "" {
		page.Next = cursor(r.present())
		return page, nil
	}
	seq, lost := uint64(0), false
	if _, err := fmt.Sscanf(q.Cursor, r.id+".%d", &seq); err != nil || seq > r.present() {
		seq, lost = r.present(), true // the cursor of an earlier process
	}
	wait := time.NewTimer(time.Duration(q.Wait))
	defer wait.Stop()
	for {
		es, next, gone, more := r.after(seq, n, q.match)
		seq, lost = next, lost || gone
		page.Next, page.Lost = cursor(seq), lost
		if len(es) > 0 {
			page.Events = es
		}
		if len(es) > 0 || lost || q.Wait == 0 {
			return page, nil
		}
		select {
		case <-more:
			if r.ended() {
				return page, errorf(CodeUnavailable, "the reading of events has ended")
			}
		case <-wait.C:
			return page, nil
		case <-ctx.Done():
			return page, wrapped(ctx.Err())
		}
	}
}

func (r *ring) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// match reports whether q selects e.
func (q *EventQuery) match(e *Event) bool {
	f := events.Filter{Types: q.Types, TaskID: q.Task}
	return f.Match(&events.Event{Type: e.Type, TaskID: e.Task}) && (q.Name == "" || q.Name == e.Name) &&
		(q.Queue == "" || q.Queue == e.Queue) && (q.Node == "" || q.Node == e.Node)
}
