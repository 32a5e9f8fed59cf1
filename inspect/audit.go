package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// AuditEvent is the type of the events about changes. Its fields are those of [AuditEntry]: "who",
// do, target, detail, done and error. The names are part of the wire format.
const AuditEvent = "inspect-change"

// AuditRetention is the retention that Config.Audit needs: 90 days and the newest 10,000 changes.
func AuditRetention() events.Retention {
	return events.Retention{Age: 90 * 24 * time.Hour, Max: 10_000, Types: []string{AuditEvent}}
}

type actorKey struct{}

// WithActor returns a context whose changes are made by actor: a user or a program. A server sets
// it after it has authenticated the caller.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the name that [WithActor] has set, or "".
func ActorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// maxAudit limits the texts of an entry, in bytes.
const maxAudit = 1 << 10

// actor returns the name of the caller.
func (l *Local) actor(ctx context.Context) string {
	if who := ActorOf(ctx); who != "" {
		return utf.Cut(who, maxAudit)
	}
	return l.cfg.Actor
}

// change runs do, which changes something, and reports it with its parameters. It completes the
// Change.
func (l *Local) change(ctx context.Context, c Change, detail any, do func(c *Change) error) (Change, error) {
	err := do(&c)
	l.Report(ctx, c, detail, err)
	return c, wrapped(err)
}

// Report publishes and logs a change, as the methods of the API do. Programs call it after a change
// that the API does not have. detail has a form as JSON and holds no secret. failure is the error
// of the change. A lost event is not returned as an error, because the change is made.
//
// It reports neither a dry run nor a failure that has changed nothing: [ErrInvalid] and
// [ErrUnsupported].
func (l *Local) Report(ctx context.Context, c Change, detail any, failure error) {
	if c.DryRun || CodeOf(failure) == CodeInvalid || CodeOf(failure) == CodeUnsupported {
		return
	}
	l.forget() // the answers of consumers may be different now
	fields := map[string]any{"who": l.actor(ctx), "do": string(c.Do), "done": c.Done}
	attrs := []slog.Attr{slog.String("who", l.actor(ctx)), slog.String("do", string(c.Do)), slog.String("target", c.Target), slog.Int("done", c.Done)}
	text, _ := json.Marshal(detail)
	for name, value := range map[string]string{"target": c.Target, "detail": string(text), "error": errorText(failure)} {
		if value != "" && value != "null" {
			fields[name] = utf.Cut(value, maxAudit)
		}
	}
	if failure != nil {
		attrs = append(attrs, slog.Any("error", failure))
	}
	l.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "inspect: change", attrs...)
	e := events.Event{Type: AuditEvent, NodeID: l.cfg.NodeID, Time: time.Now(), Fields: fields}
	for _, bus := range l.auditBuses() {
		// the caller's ctx may have ended during the change
		if err := bus.Publish(context.WithoutCancel(ctx), e); err != nil {
			l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "inspect: the change could not be reported", slog.Any("error", err))
		}
	}
}

// auditBuses returns the buses that get the reports. The retained one is first, so that it has the
// changes that are seen on the other.
func (l *Local) auditBuses() []events.EventBus {
	return slices.DeleteFunc([]events.EventBus{l.cfg.Audit, l.cfg.Events}, func(b events.EventBus) bool { return b == nil })
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// auditQuiet is the shortest time without an event after which the kept events are taken to be
// read: a bus does not tell where they end. A reader must not publish a mark to find out, since a
// mark takes a place of the log.
const auditQuiet = 500 * time.Millisecond

// auditTail holds the newest entries of the audit log, and follows it. Safe for concurrent use.
type auditTail struct {
	wanted func() // called by each reader

	mu      sync.Mutex
	known   bool          // the kept events were read
	entries []AuditEntry  // the oldest first; its elements do not change
	err     error         // of the last attempt to read; nil: no attempt has failed
	changed chan struct{} // closed and replaced when known or err changes
}

func newAuditTail(wanted func()) *auditTail {
	return &auditTail{wanted: wanted, changed: make(chan struct{})}
}

// ListAudit implements [Audit]. While [Local.Run] runs, the log is read once and then followed.
// Otherwise each call reads it, and takes at least half a second.
func (l *Local) ListAudit(ctx context.Context, q AuditQuery) (AuditPage, error) {
	page := AuditPage{Entries: []AuditEntry{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	l.mu.Lock()
	t := l.tail
	l.mu.Unlock()
	if t == nil { // Run does not run
		t = newAuditTail(func() {})
		reading, cancel := context.WithCancel(ctx)
		var read sync.WaitGroup
		read.Go(func() { t.fail(t.read(reading, l.cfg.Audit)) })
		defer read.Wait()
		defer cancel()
	}
	all, err := t.all(ctx)
	page.Entries = append(page.Entries, all[max(0, len(all)-n):]...)
	slices.Reverse(page.Entries)
	return page, err
}

// all returns the entries, the oldest first. It waits until they are read or cannot be read.
func (t *auditTail) all(ctx context.Context) ([]AuditEntry, error) {
	t.wanted()
	for {
		t.mu.Lock()
		known, entries, err, changed := t.known, t.entries, t.err, t.changed
		t.mu.Unlock()
		switch {
		case known:
			return entries, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, wrapped(ctx.Err())
		}
	}
}

// follow reads the log of bus after wanted is closed, until ctx ends. It subscribes again after an
// error.
func (t *auditTail) follow(ctx context.Context, wanted <-chan struct{}, bus events.EventBus) {
	select {
	case <-wanted:
	case <-ctx.Done():
	}
	var gap task.Backoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		err := t.read(ctx, bus)
		t.fail(err)
		if CodeOf(err) == CodeUnsupported {
			return
		}
		wake.Sleep(ctx, gap.Interval(attempt))
	}
	t.fail(errorf(CodeUnavailable, "the reading of the audit log has ended"))
}

// fail gives err to readers, if no entries are known.
func (t *auditTail) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	close(t.changed)
	t.changed = make(chan struct{})
}

// read reads the kept events of bus and then the coming ones, until ctx or the subscription ends.
func (t *auditTail) read(ctx context.Context, bus events.EventBus) error {
	retainer, ok := capability.As[events.Retainer](bus)
	if !ok {
		return missing("the audit log", needAudit)
	}
	began := time.Now()
	sub, err := retainer.Replay(ctx, events.Filter{Types: []string{AuditEvent}}, time.Time{})
	if errors.Is(err, events.ErrNotRetained) {
		return missing("the audit log", needAudit)
	}
	if err != nil {
		return wrapped(err)
	}
	defer closeSub(ctx, sub)
	quiet := auditQuiet + 4*time.Since(began) // a slow server has longer
	var all []AuditEntry
	for known := false; ; {
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if !known {
			waiting, cancel = context.WithTimeout(ctx, quiet)
		}
		e, err := sub.Receive(waiting)
		over := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			all = append(all, auditEntry(&e))
			all = all[max(0, len(all)-MaxLimit):]
		case over:
			known = true
		default:
			return wrapped(err)
		}
		if known {
			t.set(all)
		}
	}
}

// set replaces the entries.
func (t *auditTail) set(all []AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries = all; !t.known {
		t.known = true
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// auditEntry reads an event of any sender.
func auditEntry(e *events.Event) AuditEntry {
	text := func(name string) string { s, _ := e.Fields[name].(string); return s }
	a := AuditEntry{At: e.Time, Node: e.NodeID, Who: text("who"), Do: Do(text("do")), Target: text("target"), Detail: text("detail"), Error: text("error")}
	switch n := e.Fields["done"].(type) {
	case float64:
		a.Done = int(n)
	case int:
		a.Done = n
	}
	return a
}

// closeTime limits the closing of a subscription.
const closeTime = time.Second

// closeSub closes a subscription from which nothing more is needed.
func closeSub(ctx context.Context, sub events.Subscription) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = sub.Close(closing) // the stream ends with the bus at the latest
}
