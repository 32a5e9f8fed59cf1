package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

const (
	maxStreams = 200              // streams at the same time
	waiting    = 64               // pages of events that wait for one stream
	heartbeat  = 15 * time.Second // between two signs of life of a stream
	again      = time.Second      // until the next attempt after an error
	writeTime  = 30 * time.Second // limits a write to a stream
	longPoll   = 20 * time.Second // of the one subscription
	maxCatchUp = 20               // pages that a resumed stream reads
	// settle is the time from an event until a page shows it: a recorder writes its events so late,
	// and most shared answers are kept for a part of it.
	settle = keep + 1250*time.Millisecond
	// lag is the time after the last event until a page is loaded once more: a busy recorder is late.
	lag = 6 * time.Second
)

// live sends events to browsers. One goroutine asks the API for all streams, while there are any.
type live struct {
	api     inspect.API
	changed func() // called before the streams get the event of a change through an inspect.API
	logger  *slog.Logger

	mu      sync.Mutex
	streams map[*stream]bool
	stop    context.CancelFunc // of the goroutine; nil: it does not run
	closed  bool
	ending  chan struct{}  // closed by close
	running sync.WaitGroup // streams and the goroutine
}

// stream is one connection of a browser.
type stream struct {
	to     *http.ResponseController
	pages  chan inspect.EventPage
	missed chan struct{} // has a value if a page did not fit
}

func newLive(api inspect.API, changed func(), logger *slog.Logger) *live {
	return &live{api: api, changed: changed, logger: logger, streams: make(map[*stream]bool), ending: make(chan struct{})}
}

// close ends all streams, also those whose browsers read nothing. Idempotent.
func (l *live) close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ending)
		for s := range l.streams {
			s.cut()
		}
		if l.stop != nil {
			l.stop()
		}
	}
	l.mu.Unlock()
	return wait(ctx, &l.running)
}

// cut ends the write of a stream, and the use of its connection: other requests have no deadline.
func (s *stream) cut() { _ = s.to.SetWriteDeadline(time.Now()) } // not every writer has one

// join adds a stream that gets the events after cursor. ok is false if there are too many.
func (l *live) join(cursor string, to *http.ResponseController) (s *stream, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.streams) >= maxStreams {
		return nil, false
	}
	s = &stream{to: to, pages: make(chan inspect.EventPage, waiting), missed: make(chan struct{}, 1)}
	l.streams[s] = true
	l.running.Add(1)
	if l.stop == nil {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(context.Background())
		l.running.Go(func() { l.read(ctx, cursor) })
	}
	return s, true
}

// leave removes a stream. The last one stops the goroutine.
func (l *live) leave(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, s)
	if len(l.streams) == 0 && l.stop != nil {
		l.stop()
		l.stop = nil
	}
	l.running.Done()
}

// read reads the events after cursor and gives them to the streams until ctx ends.
func (l *live) read(ctx context.Context, cursor string) {
	for ctx.Err() == nil {
		page, err := l.api.ListEvents(ctx, inspect.EventQuery{Cursor: cursor, Limit: inspect.MaxLimit, Wait: inspect.Duration(longPoll)})
		if err != nil {
			if ctx.Err() == nil {
				l.logger.DebugContext(ctx, "dashboard: events cannot be read; trying again", slog.Any("error", err))
			}
			select {
			case <-time.After(again):
			case <-ctx.Done():
			}
			continue
		}
		cursor = page.Next
		if page.Lost || slices.ContainsFunc(page.Events, func(e inspect.Event) bool { return e.Type == inspect.AuditEvent }) {
			l.changed()
		}
		if len(page.Events) > 0 || page.Lost {
			l.give(ctx, page)
		}
	}
}

func (l *live) give(ctx context.Context, page inspect.EventPage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return // the streams belong to a later goroutine
	}
	for s := range l.streams {
		select {
		case s.pages <- page:
		default:
			select {
			case s.missed <- struct{}{}:
			default:
			}
		}
	}
}

// quiet reports whether an event changes nothing that a page shows. A check sends events, so pages
// that check would load themselves for ever otherwise.
func quiet(e *inspect.Event) bool {
	switch e.Type {
	case "doctor", "worker-heartbeat":
		return true
	}
	return false
}

// serve answers with Server-Sent Events. An event "changed" says that pages are different now, at
// most once in two seconds. It comes once more after the last change and after the beginning. With
// the parameter all=1 each event is an event "event" with JSON, filtered by the parameters type,
// task, name, queue and node. An event "lost" says that events before it are missing. The ids are
// cursors: a browser sends the last one when it connects again, or as the parameter after. A
// stream that was interrupted may get an event twice.
func (l *live) serve(w http.ResponseWriter, r *http.Request) {
	now, err := l.api.ListEvents(r.Context(), inspect.EventQuery{})
	switch {
	case missing(err):
		w.WriteHeader(http.StatusNoContent) // tells a browser not to try again
		return
	case err != nil:
		http.Error(w, inspect.Wrap(err).Text, http.StatusServiceUnavailable)
		return
	}
	to := http.NewResponseController(w)
	s, ok := l.join(now.Next, to)
	if !ok {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too many pages are open; this one is not live.", http.StatusServiceUnavailable)
		return
	}
	defer s.cut()
	defer l.leave(s)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must not collect them
	c := conn{
		w: w, to: to, want: filterOf(r), ending: l.ending,
		cursor: cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after"), now.Next),
	}
	c.send("", "", "retry: 2000\n")
	l.resume(r.Context(), &c)
	c.send("", c.cursor, ": ready\n")
	if !c.want.all {
		c.last = time.Now() // something may have changed since the page was loaded
	}
	l.follow(r.Context(), &c, s)
}

// resume sends the events after c.cursor, of a stream that was interrupted or that was too slow.
// The stream has joined before, so that no event falls between.
func (l *live) resume(ctx context.Context, c *conn) {
	cursor := c.cursor
	for range maxCatchUp {
		page, err := l.api.ListEvents(ctx, inspect.EventQuery{Cursor: cursor, Limit: inspect.MaxLimit})
		if err != nil {
			break
		}
		c.page(&page)
		if cursor = page.Next; len(page.Events) == 0 || c.err != nil {
			return
		}
	}
	c.send("lost", "", "data: 1\n")
}

// follow sends the coming events until the caller is gone or live is closed.
func (l *live) follow(ctx context.Context, c *conn, s *stream) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for c.err == nil {
		var due <-chan time.Time
		if at := c.due(); !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case page := <-s.pages:
			c.page(&page)
		case <-s.missed:
			l.resume(ctx, c)
		case <-due:
			c.changed = time.Time{}
			if time.Since(c.last) >= lag {
				c.last = time.Time{}
			}
			c.send("changed", c.cursor, "data: 1\n")
		case <-beat.C:
			c.send("", c.cursor, ": still here\n")
		case <-l.ending:
			return
		case <-ctx.Done():
			return
		}
	}
}

// filter selects the events of a stream.
type filter struct {
	all                           bool // each event; otherwise only that there are some
	kind, task, name, queue, node string
}

func filterOf(r *http.Request) filter {
	q := r.URL.Query()
	return filter{q.Get("all") != "", q.Get("type"), q.Get("task"), q.Get("name"), q.Get("queue"), q.Get("node")}
}

func (f *filter) match(e *inspect.Event) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.kind, e.Type) && is(f.task, string(e.Task)) && is(f.name, e.Name) && is(f.queue, e.Queue) && is(f.node, e.Node)
}

// conn writes to a browser. Its first error ends it.
type conn struct {
	w      http.ResponseWriter
	to     *http.ResponseController
	want   filter
	ending <-chan struct{} // closed by live.close
	err    error

	cursor  string    // behind the events that were sent
	seq     uint64    // behind them too; 0: none was sent
	changed time.Time // time of the first change that was not sent; zero: no change
	last    time.Time // time of the last change; zero: it was sent for good
}

// due returns the time of the next event "changed", or zero.
func (c *conn) due() time.Time {
	switch {
	case !c.changed.IsZero():
		return c.changed.Add(settle)
	case !c.last.IsZero():
		return c.last.Add(lag)
	}
	return time.Time{}
}

// page sends the events of a page that were not sent before.
func (c *conn) page(p *inspect.EventPage) {
	if p.Lost {
		c.seq = 0 // perhaps of another process, whose count begins at 1
		c.send("lost", "", "data: 1\n")
	}
	if n := len(p.Events); n == 0 || p.Events[n-1].Seq+1 >= c.seq { // not an older page
		c.cursor = p.Next
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.Seq < c.seq {
			continue
		}
		c.seq = e.Seq + 1
		if !c.want.all {
			if !quiet(e) {
				c.last = time.Now()
				c.changed = cmp.Or(c.changed, c.last)
			}
			continue
		}
		if !c.want.match(e) {
			continue
		}
		id := "" // the cursor is valid behind the last event alone
		if i == len(p.Events)-1 {
			id = p.Next
		}
		data, err := json.Marshal(eventRow(e))
		if err != nil {
			c.err = err
			return
		}
		c.send("event", id, "data: "+string(data)+"\n")
	}
}

// send writes an event, or a comment if kind is "". lines end with a line feed.
func (c *conn) send(kind, id, lines string) {
	if c.err != nil {
		return
	}
	_ = c.to.SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
	select {
	case <-c.ending: // after the deadline: a later close cuts the write
		c.err = context.Canceled
		return
	default:
	}
	text := lines
	if kind != "" {
		text = "event: " + kind + "\n" + text
	}
	if id != "" {
		text = "id: " + id + "\n" + text
	}
	if _, c.err = fmt.Fprint(c.w, text+"\n"); c.err == nil {
		c.err = c.to.Flush()
	}
}

// row is an event for the page of events. All values are texts, so that no number is rounded.
type row struct {
	Seq   string  `json:"seq"`
	At    string  `json:"at"`
	Type  string  `json:"type"`
	Class string  `json:"class"`
	Sign  string  `json:"sign"`
	Node  string  `json:"node"`
	Task  task.ID `json:"task"`
	Name  string  `json:"name"`
	Queue string  `json:"queue"`
	Text  string  `json:"text"`
}

// eventRow returns an event as a row.
func eventRow(e *inspect.Event) row {
	m := badge(eventState(e.Type))
	r := row{
		Seq: fmt.Sprint(e.Seq), At: e.At.UTC().Format(time.RFC3339Nano), Type: e.Type, Class: m.Class, Sign: m.Sign, Node: e.Node, Task: e.Task,
		Name: e.Name, Queue: e.Queue,
	}
	switch {
	case e.Error != "":
		r.Text = e.Error
	case e.Result != "":
		r.Text = e.Result
	case len(e.Fields) > 0:
		if data, err := json.Marshal(e.Fields); err == nil {
			r.Text = string(data)
		}
	default:
		r.Text = e.Args
	}
	r.Text = short(maxText, r.Text)
	return r
}

// maxText limits the text of an event, in characters.
const maxText = 500
