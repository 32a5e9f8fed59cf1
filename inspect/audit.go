package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// AuditEvent is the type of the events about changes. Its fields are those of [AuditEntry]: "who",
// do, target, detail, done and error. The names are part of the wire format.
const AuditEvent = "inspect-change"

// auditMark is the type of an event without meaning. A reader that receives its own mark has
// received all earlier events. Marks take places of the retention, so readers send few.
const auditMark = "inspect-mark"

// AuditRetention is the retention that Config.Audit needs: 90 days and the newest 10,000 changes.
func AuditRetention() events.Retention {
	return events.Retention{Age: 90 * 24 * time.Hour, Max: 10_000, Types: []string{AuditEvent, auditMark}}
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
	defer l.changes.Add(1)
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

// auditTime limits the age of an audit log that is shown again, since events may be lost.
const auditTime = 30 * time.Minute

// auditLog holds the newest entries of the audit log, the newest first. It is immutable.
type auditLog struct {
	at      time.Time
	ring    *ring  // tells of the changes of other processes; nil: Run does not run
	changes uint64 // that were known before it was read
	entries []AuditEntry
}

// ListAudit implements [Audit]. While Run runs, it reads the retained events only after a change:
// each reading takes a place of the retention, and an open page reads often.
func (l *Local) ListAudit(ctx context.Context, q AuditQuery) (AuditPage, error) {
	n, err := pageLimit(q.Limit)
	if err != nil {
		return AuditPage{Entries: []AuditEntry{}}, err
	}
	l.mu.Lock()
	known, now := l.audited, auditLog{at: time.Now(), ring: l.ring, changes: l.changes.Load()}
	l.mu.Unlock()
	if now.ring != nil {
		now.changes += now.ring.changes.Load()
	}
	if now.ring == nil || known == nil || known.ring != now.ring || known.changes != now.changes || now.at.Sub(known.at) > auditTime {
		page, err := l.readAudit(ctx, MaxLimit)
		if err != nil {
			return page, err
		}
		now.entries, known = page.Entries, &now
		l.mu.Lock()
		l.audited = known
		l.mu.Unlock()
	}
	return AuditPage{Entries: slices.Clone(known.entries[:min(n, len(known.entries))])}, nil
}

// readAudit reads the newest n entries of the retained events.
func (l *Local) readAudit(ctx context.Context, n int) (AuditPage, error) {
	page := AuditPage{Entries: []AuditEntry{}}
	bus := l.cfg.Audit
	if bus == nil {
		bus = l.cfg.Events
	}
	retainer, ok := capability.As[events.Retainer](bus)
	if !ok {
		return page, missing("the audit log", needAudit)
	}
	sub, err := retainer.Replay(ctx, events.Filter{Types: []string{AuditEvent, auditMark}}, time.Time{})
	if errors.Is(err, events.ErrNotRetained) {
		return page, missing("the audit log", needAudit)
	}
	if err != nil {
		return page, wrapped(err)
	}
	defer closeSub(ctx, sub)
	mark := l.cfg.NodeID + "/" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := bus.Publish(ctx, events.Event{Type: auditMark, NodeID: l.cfg.NodeID, Time: time.Now(), Fields: map[string]any{"mark": mark}}); err != nil {
		return page, wrapped(err)
	}
	for {
		e, err := sub.Receive(ctx)
		if err != nil {
			return page, wrapped(err)
		}
		if e.Type == auditMark {
			if e.Fields["mark"] == mark {
				break
			}
			continue
		}
		if page.Entries = append(page.Entries, auditEntry(&e)); len(page.Entries) >= 2*n {
			page.Entries = slices.Delete(page.Entries, 0, len(page.Entries)-n)
		}
	}
	page.Entries = page.Entries[max(0, len(page.Entries)-n):]
	slices.Reverse(page.Entries)
	return page, nil
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
