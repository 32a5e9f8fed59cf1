package inspect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect/internal/recent"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// keptEvents is the number of events that Run keeps.
const keptEvents = 10_000

// eventTail holds the newest events. Make one with newEventTail. Safe for concurrent use.
type eventTail struct {
	*recent.List[Event]

	log *slog.Logger
	id  string // of this tail: cursors of another process are not valid here

	// labels has the name and the queue of each task whose events are in the list, unless the events
	// that tell them were missed. Only the goroutine of fill uses it.
	labels map[task.ID]label
}

// label has the texts that only the events of a task's submission and receipt have.
type label struct {
	name, queue string
	last        uint64 // number of the newest event of the task
}

func newEventTail(log *slog.Logger) *eventTail {
	return &eventTail{log: log, List: recent.New[Event](keptEvents), id: fmt.Sprintf("%x", time.Now().UnixNano()), labels: make(map[task.ID]label)}
}

// fill adds the events of a bus until ctx ends, and then returns nil. It subscribes again after an
// error.
func (t *eventTail) fill(ctx context.Context, bus events.EventBus) error {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := t.receive(ctx, bus, func() { attempt = 0 })
		if ctx.Err() != nil {
			return nil
		}
		t.log.DebugContext(ctx, "inspect: the subscription to events failed; trying again", slog.Any("error", err))
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return nil
		}
	}
}

func (t *eventTail) receive(ctx context.Context, bus events.EventBus, good func()) error {
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
		t.add(eventOf(&e))
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

// add adds an event under the next number. An event without a name or a queue gets that of an
// earlier event of the task.
func (t *eventTail) add(e Event) {
	e.Seq = t.Next() // no other goroutine adds
	if known := t.labels[e.Task]; e.Task != "" {
		e.Name, e.Queue = cmp.Or(e.Name, known.name), cmp.Or(e.Queue, known.queue)
		if e.Name != "" || e.Queue != "" {
			t.labels[e.Task] = label{e.Name, e.Queue, e.Seq}
		}
	}
	if old, removed := t.Add(e); removed && t.labels[old.Task].last == old.Seq {
		delete(t.labels, old.Task)
	}
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
	t := l.events
	l.mu.Unlock()
	if t == nil {
		return page, missing("events", needRun)
	}
	cursor := func(seq uint64) string { return fmt.Sprintf("%s.%d", t.id, seq) }
	if q.Cursor == "" {
		page.Next = cursor(t.Next())
		return page, nil
	}
	seq, lost := uint64(0), false
	if _, err := fmt.Sscanf(q.Cursor, t.id+".%d", &seq); err != nil || seq > t.Next() {
		seq, lost = t.Next(), true // the cursor of an earlier process
	}
	wait := time.NewTimer(time.Duration(q.Wait))
	defer wait.Stop()
	for {
		es, next, gone, more := t.From(seq, n, q.match)
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
			if t.Closed() {
				return page, errorf(CodeUnavailable, "the reading of events has ended")
			}
		case <-wait.C:
			return page, nil
		case <-ctx.Done():
			return page, wrapped(ctx.Err())
		}
	}
}

// match reports whether q selects e.
func (q *EventQuery) match(e *Event) bool {
	f := events.Filter{Types: q.Types, TaskID: q.Task}
	return f.Match(&events.Event{Type: e.Type, TaskID: e.Task}) && (q.Name == "" || q.Name == e.Name) &&
		(q.Queue == "" || q.Queue == e.Queue) && (q.Node == "" || q.Node == e.Node)
}
