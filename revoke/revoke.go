// Package revoke stops tasks before they start. A revocation travels as an event over a bus that keeps events
// ([events.Retainer]), so that consumers hear of it at once, and those that are started later read it before their first
// task.
//
//   - [Revoker] is the user's side: it revokes tasks by id or by a [Selector], and returns when the bus has stored that.
//   - [List] is what a consumer, or a producer, knows of the revocations: consumer.Config.Revocations, and [List.Refuse].
//   - [Retention] is how the bus has to be configured; open.Swarm has one that is, in its field Revocations.
//
// A revoked task is settled without a run: its record is [task.StateRevoked], its future answers [task.ErrRevoked]. That
// holds for tasks that are queued, fetched ahead, delayed, or waiting for a retry. A task that runs is left alone, unless
// the revocation asks to terminate it. What has ended stays as it is.
package revoke

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// Keep is how much longer than until the last moment its task may start a revocation lives.
	Keep = 3 * time.Hour
	// DefaultUntil is that moment, from now, for a revocation that names none: a queued task may have to wait for the next
	// consumer.
	DefaultUntil = 24 * time.Hour
	// DefaultAge is how long the bus of [Retention] keeps a revocation.
	DefaultAge = 7*24*time.Hour + Keep
)

// MaxIDs is how many tasks one event revokes.
const MaxIDs = 100

// maxLabel bounds the texts of a selector, in bytes: longer ones would be cut on their way.
const maxLabel = 1 << 10

// ErrBadSelector is what a selector that cannot be used returns.
var ErrBadSelector = errors.New("revoke: bad selector")

// Retention is what a bus has to keep for revocations: their events for [DefaultAge], the newest 100,000, each of which may
// revoke up to [MaxIDs] tasks. Revocations that are to live longer need a larger Age. All nodes have to use the same.
func Retention() events.Retention {
	return events.Retention{Age: DefaultAge, Types: []string{events.TaskRevoke}}
}

// Selector chooses tasks by what is set in it; all of that has to be so. One of Header, Name and Queue must be set.
type Selector struct {
	// Header and Value: the task has this header with this value. "": any.
	Header, Value string
	// Name is the task's name. "": any.
	Name string
	// Queue is where the task came from. "": any.
	Queue string
	// SentBefore spares tasks that were submitted later, on their producer's clock, in milliseconds. Zero: tasks that are
	// still to be submitted are revoked too, for as long as the revocation lives.
	SentBefore time.Time
}

func (s *Selector) isZero() bool { return *s == Selector{} }

// Check returns an error that wraps [ErrBadSelector] when s chooses nothing in particular, or texts are too long.
func (s *Selector) Check() error {
	switch {
	case s.Header == "" && s.Name == "" && s.Queue == "":
		return fmt.Errorf("%w: it would revoke every task; set Header, Name or Queue", ErrBadSelector)
	case s.Header == "" && s.Value != "":
		return fmt.Errorf("%w: a Value without a Header", ErrBadSelector)
	}
	for _, text := range []string{s.Header, s.Value, s.Name, s.Queue} {
		if len(text) > maxLabel || utf.Cut(text, maxLabel) != text {
			return fmt.Errorf("%w: texts are UTF-8 of at most %d bytes", ErrBadSelector, maxLabel)
		}
	}
	return nil
}

// Match reports whether s chooses a task that came from queue.
func (s *Selector) Match(queue string, e *task.Envelope) bool {
	if s.isZero() || s.Name != "" && s.Name != e.Name || s.Queue != "" && s.Queue != queue {
		return false
	}
	if s.Header != "" {
		if v, ok := e.Headers[s.Header]; !ok || v != s.Value {
			return false
		}
	}
	return s.SentBefore.IsZero() || !e.SentAt.After(s.SentBefore)
}

// Revocation is one event: it revokes tasks by their ids, or those of a selector.
type Revocation struct {
	IDs       []task.ID
	Selector  Selector  // zero: none
	Until     time.Time // the last moment such a task may start; the revocation lives for Keep longer
	Terminate bool      // contexts of such tasks that run are cancelled, with cause task.ErrRevoked

	token string // by which the sender knows it again
}

// Match reports whether v revokes a task that came from queue.
func (v *Revocation) Match(queue string, e *task.Envelope) bool {
	return slices.Contains(v.IDs, e.ID) || v.Selector.Match(queue, e)
}

// The fields of the event. They are part of the wire format.
const (
	fieldToken     = "token"
	fieldIDs       = "ids"
	fieldUntil     = "until-ms"
	fieldTerminate = "terminate"
	fieldHeader    = "header"
	fieldValue     = "value"
	fieldName      = "task-name"
	fieldQueue     = "task-queue"
	fieldBefore    = "sent-before-ms"
)

// marker is an event that revokes nothing: whoever reads it has read all that the bus took before it.
func marker(node string) events.Event {
	return events.Event{Type: events.TaskRevoke, NodeID: node, Time: time.Now(), Fields: map[string]any{fieldToken: rand.Text()}}
}

// event writes v.
func (v *Revocation) event(node string) events.Event {
	e := marker(node)
	e.Fields[fieldUntil] = v.Until.UnixMilli()
	if v.Terminate {
		e.Fields[fieldTerminate] = true
	}
	if len(v.IDs) > 0 {
		ids := make([]any, len(v.IDs))
		for i, id := range v.IDs {
			ids[i] = string(id)
		}
		e.Fields[fieldIDs] = ids
	}
	s := &v.Selector
	for name, text := range map[string]string{fieldHeader: s.Header, fieldName: s.Name, fieldQueue: s.Queue} {
		if text != "" {
			e.Fields[name] = text
		}
	}
	if s.Header != "" {
		e.Fields[fieldValue] = s.Value
	}
	if !s.SentBefore.IsZero() {
		e.Fields[fieldBefore] = s.SentBefore.UnixMilli()
	}
	return e
}

// tokenOf returns the token of an event.
func tokenOf(e *events.Event) string {
	token, _ := e.Fields[fieldToken].(string)
	return token
}

// read reads an event of anybody's. What is no revocation revokes nothing.
func read(e *events.Event) Revocation {
	v := Revocation{token: tokenOf(e)}
	until, ok := e.Fields[fieldUntil].(float64)
	if !ok || until < 0 || until > maxMillis {
		return v
	}
	v.Until = time.UnixMilli(int64(until))
	v.Terminate, _ = e.Fields[fieldTerminate].(bool)
	ids, _ := e.Fields[fieldIDs].([]any)
	for _, value := range ids[:min(len(ids), MaxIDs)] {
		if id, ok := value.(string); ok && task.ID(id).Check() == nil {
			v.IDs = append(v.IDs, task.ID(id))
		}
	}
	s := Selector{}
	s.Header, _ = e.Fields[fieldHeader].(string)
	s.Value, _ = e.Fields[fieldValue].(string)
	s.Name, _ = e.Fields[fieldName].(string)
	s.Queue, _ = e.Fields[fieldQueue].(string)
	if before, ok := e.Fields[fieldBefore].(float64); ok && before > 0 && before < maxMillis {
		s.SentBefore = time.UnixMilli(int64(before))
	}
	if s.Check() == nil {
		v.Selector = s
	}
	return v
}

// maxMillis is the end of the year 9999.
const maxMillis = 253402300799999

// ends is when v is forgotten, in milliseconds since 1970.
func (v *Revocation) ends() int64 { return v.Until.Add(Keep).UnixMilli() }
