// Package revoke prevents queued tasks from starting. A revocation is an event on a bus that stores
// events ([events.Retainer]). Running consumers receive it at once; consumers that start later read
// it before their first task.
//
//   - A [Revoker] revokes tasks by id or by a [Selector], and returns when the bus has stored that.
//     [Revoker.Cancel] cancels a workflow.
//   - A [List] holds the revocations for a consumer (consumer.Config.Revocations) or a producer
//     ([List.Refuse]).
//   - [Retention] is the required configuration of the bus. open.Swarm has such a bus in its field
//     Revocations.
//
// A revoked task is settled without a run: its record has [task.StateRevoked], and its future
// returns [task.ErrRevoked]. This applies to tasks that are queued, prefetched, delayed, or waiting
// for a retry. A running task continues, unless the revocation requests its termination. Ended
// tasks do not change.
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
	// Keep is the time for which a revocation is stored after the last moment at which its task may
	// start.
	Keep = 3 * time.Hour
	// DefaultUntil is the default of Options.Until, from now. A queued task may wait long for a
	// consumer.
	DefaultUntil = 24 * time.Hour
	// DefaultAge is the time for which the bus of [Retention] stores a revocation.
	DefaultAge = 7*24*time.Hour + Keep
)

// MaxIDs is the maximum number of ids in one event.
const MaxIDs = 100

// maxLabel limits the texts of a selector, in bytes. The bus would cut longer ones.
const maxLabel = 1 << 10

// ErrBadSelector is wrapped by errors about invalid selectors.
var ErrBadSelector = errors.New("revoke: bad selector")

// Retention returns the retention that a bus needs for revocations: [DefaultAge], and the newest
// 100,000 events, each with up to [MaxIDs] ids. Revocations that must last longer need a larger
// Age. All nodes must use the same retention.
func Retention() events.Retention {
	return events.Retention{Age: DefaultAge, Types: []string{events.TaskRevoke}}
}

// Selector chooses the tasks that match all its fields. One of Header, Name, Queue and Root must be
// set.
type Selector struct {
	// Header and Value: the task has this header with this value. "": any.
	Header, Value string
	// Name is the task's name. "": any.
	Name string
	// Queue is the queue of the task. "": any.
	Queue string
	// Root is the id of a workflow: the task has this root ([task.Envelope.RootID]). Header, Name and
	// Queue must then be empty: consumers of versions before Root would ignore it. "": any.
	Root task.ID
	// SentBefore excludes tasks submitted later, on their producer's clock, in milliseconds. Zero:
	// tasks that are submitted later match too, until the revocation ends.
	SentBefore time.Time
}

// isZero reports whether no field of s is set: it chooses no task.
func (s *Selector) isZero() bool { return *s == Selector{} }

// Check returns an error that wraps [ErrBadSelector] for an invalid selector:
//
//   - It would choose all tasks.
//   - It has a Value without a Header, or a Root with other fields.
//   - A text is too long or not UTF-8.
//   - Root is malformed; the error also wraps [task.ErrBadID].
func (s *Selector) Check() error {
	switch {
	case s.Root != "" && (s.Header != "" || s.Value != "" || s.Name != "" || s.Queue != ""):
		return fmt.Errorf("%w: Root with Header, Name or Queue", ErrBadSelector)
	case s.Root != "":
		if err := s.Root.Check(); err != nil {
			return fmt.Errorf("%w: Root: %w", ErrBadSelector, err)
		}
		return nil
	case s.Header == "" && s.Name == "" && s.Queue == "":
		return fmt.Errorf("%w: it would revoke every task; set Header, Name, Queue or Root", ErrBadSelector)
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

// Match reports whether s chooses a task from queue: all fields that are set match. The zero
// Selector chooses no task.
func (s *Selector) Match(queue string, e *task.Envelope) bool {
	if s.isZero() || s.Name != "" && s.Name != e.Name || s.Queue != "" && s.Queue != queue {
		return false
	}
	if s.Root != "" && s.Root != e.RootID() {
		return false
	}
	if s.Header != "" {
		if v, ok := e.Headers[s.Header]; !ok || v != s.Value {
			return false
		}
	}
	return s.SentBefore.IsZero() || !e.SentAt.After(s.SentBefore)
}

// Revocation is one event. It revokes tasks by their ids, or those of a selector.
type Revocation struct {
	IDs      []task.ID
	Selector Selector // zero: no selector
	// last moment at which such a task may start; the revocation is stored for Keep longer
	Until     time.Time
	Terminate bool // cancel the contexts of running tasks, with cause task.ErrRevoked

	token string // identifies the event for its sender
	// each list of a consumer answers with its node when it has applied the revocation
	answer bool
}

// Match reports whether v revokes a task from queue.
func (v *Revocation) Match(queue string, e *task.Envelope) bool {
	return slices.Contains(v.IDs, e.ID) || v.Selector.Match(queue, e)
}

// Fields of the event. They are part of the wire format.
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
	fieldRoot      = "root"
	fieldAnswer    = "answer"
)

// marker returns an event of the sender node that revokes nothing, with a new token. A reader that
// receives it has received all earlier events.
func marker(node string) events.Event {
	return events.Event{Type: events.TaskRevoke, NodeID: node, Time: time.Now(), Fields: map[string]any{fieldToken: rand.Text()}}
}

// event returns the event by which the process node sends v. It has the token of v, or a new one. v
// does not change.
func (v *Revocation) event(node string) events.Event {
	e := marker(node)
	if v.token != "" {
		e.Fields[fieldToken] = v.token
	}
	if v.answer {
		e.Fields[fieldAnswer] = true
	}
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
	for name, text := range map[string]string{fieldHeader: s.Header, fieldName: s.Name, fieldQueue: s.Queue, fieldRoot: string(s.Root)} {
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

// tokenOf returns the token of an event, or "" for an event without a token.
func tokenOf(e *events.Event) string {
	token, _ := e.Fields[fieldToken].(string)
	return token
}

// read decodes an event of any sender. Invalid ids, an invalid selector and ids beyond [MaxIDs] are
// left out. Without a valid end the result revokes nothing.
func read(e *events.Event) Revocation {
	v := Revocation{token: tokenOf(e)}
	until, ok := e.Fields[fieldUntil].(float64)
	if !ok || until < 0 || until > maxMillis {
		return v
	}
	v.Until = time.UnixMilli(int64(until))
	v.Terminate, _ = e.Fields[fieldTerminate].(bool)
	v.answer, _ = e.Fields[fieldAnswer].(bool)
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
	root, _ := e.Fields[fieldRoot].(string)
	s.Root = task.ID(root)
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

// ends returns when v is over, in milliseconds since 1970.
func (v *Revocation) ends() int64 { return v.Until.Add(Keep).UnixMilli() }
