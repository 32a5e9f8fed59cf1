package wire

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Format is the [serializer.Format] of Celery's messages, version 2 of its protocol. The zero value
// writes results in JSON, Celery's default. Put it first in a list of formats: it returns
// [serializer.ErrNotMine] for messages without the headers "task" and "id".
//
// The arguments of a decoded task have the content type [ContentJSONArgs] or [ContentMsgpackArgs].
// Encode writes these, and a single JSON or msgpack value as the only positional argument.
//
//   - A link that continues the chain (task.Link.Last) is in Celery's chain, other successors are
//     callbacks, and Else are error callbacks.
//   - task.GatherName is written as celery.accumulate, which every Celery application has.
//   - A name or a queue that package task refuses, such as __main__.add, is malformed.
type Format struct {
	// Results is the content type of results: "" or [serializer.ContentJSON], or
	// [serializer.ContentMsgpack] if result_serializer of the Python programs is msgpack.
	Results string
	// ResultStore names the store for results of decoded tasks, as task.Metadata.ResultStore does. "":
	// the default store.
	ResultStore string
}

// ContentType returns [serializer.ContentJSON]. Tasks with arguments in msgpack have
// [ContentMsgpack].
func (Format) ContentType() string { return serializer.ContentJSON }

// The headers of Celery's messages that are not kept as headers of the task.
var knownHeaders = map[string]bool{
	"lang": true, "task": true, "id": true, "shadow": true, "eta": true, "expires": true, "group": true, "group_index": true,
	"retries": true, "timelimit": true, "root_id": true, "parent_id": true, "argsrepr": true, "kwargsrepr": true, "origin": true,
	"ignore_result": true, "compression": true, "redelivered": true, headerRest: true, headerChord: true, headerOptions: true,
	"x-death": true, "x-delivery-count": true, "replaced_task_nesting": true, "stamped_headers": true, "stamps": true,
}

// Encode implements [serializer.Format]. It sets the properties content-encoding, correlation-id,
// reply-to and priority, which has Celery's numbers. Returns [serializer.ErrValue] for what Celery
// cannot express, see the package.
func (f Format) Encode(e *task.Envelope) (*broker.Message, error) {
	if e.ID == "" || e.Name == "" {
		return nil, fmt.Errorf("%w: a task of Celery has a name and an id", serializer.ErrValue)
	}
	err := serializer.CheckEnvelope(e)
	var m *broker.Message
	if err == nil {
		m, err = f.encode(e)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrValue, err)
	}
	return m, nil
}

// encode does the work of Encode.
func (f Format) encode(e *task.Envelope) (*broker.Message, error) {
	c := codingOf(e.ContentType)
	if c == nil {
		c = jsonCoding{}
	}
	made, err := callOf(c, e.ContentType, e.Args)
	if err != nil {
		return nil, err
	}
	name := e.Name
	if name == task.GatherName {
		zero, err := c.encode(0)
		if err != nil {
			return nil, err
		}
		name, made.kwargs = nameAccumulate, []member{{"index", zero}}
	}
	member := e.Chord != nil
	embed, moved, err := embedOf(c, e)
	if err != nil {
		return nil, err
	}
	kwargs, err := c.joinMembers(made.kwargs)
	if err != nil {
		return nil, err
	}
	m := serializer.NewMessage(e, c.message(), c.join(c.join(made.args...), kwargs, embed))
	m.Headers = map[string]any{"lang": "py", "task": name, "id": string(e.ID), "root_id": string(e.RootID())}
	f.headers(m.Headers, e)
	if e.Group != "" && !moved {
		m.Headers["group"] = string(e.Group)
		if member {
			m.Headers["group_index"] = int64(e.GroupIndex)
		}
	}
	if text := chordSizes(e); text != "" {
		m.Headers[headerChord] = text
	}
	rest := f.rest(e)
	text, err := writeRest(&rest)
	if err != nil {
		return nil, err
	}
	if text != "" {
		m.Headers[headerRest] = text
	}
	m.Properties = map[string]string{"content-encoding": "utf-8", "correlation-id": string(e.ID)}
	if c != (jsonCoding{}) {
		m.Properties["content-encoding"] = "binary"
	}
	if e.ReplyTo != "" {
		m.Properties["reply-to"] = e.ReplyTo
	}
	if p := CeleryPriority(m.Priority); p != 0 {
		m.Properties["priority"] = fmt.Sprint(p)
	}
	return m, nil
}

// embedOf returns the encoded fourth part of a task: its callbacks, error callbacks, chain and
// chord. It moves the task's membership in a group to the last task of its chain; moved is then
// true.
func embedOf(c coding, e *task.Envelope) (embed []byte, moved bool, err error) {
	parts := map[string]any{"callbacks": nil, "errbacks": nil, "chain": nil, "chord": nil}
	w := &signatureWriter{c: c, left: serializer.MaxLinks}
	next, callbacks, err := continuation(e.Then)
	if err != nil {
		return nil, false, err
	}
	if len(callbacks) > 0 {
		if parts["callbacks"], err = w.list(callbacks); err != nil {
			return nil, false, err
		}
	}
	if len(e.Else) > 0 {
		if parts["errbacks"], err = w.list(e.Else); err != nil {
			return nil, false, err
		}
	}
	var m *task.Membership
	if e.Chord != nil {
		m = &task.Membership{Group: e.Group, Index: e.GroupIndex, Size: e.GroupSize, Chord: e.Chord}
	}
	switch {
	case next != nil:
		steps, err := w.steps(next, m)
		if err != nil {
			return nil, false, err
		}
		for i, j := 0, len(steps)-1; i < j; i, j = i+1, j-1 { // Celery takes the next one from the end
			steps[i], steps[j] = steps[j], steps[i]
		}
		parts["chain"], moved = steps, m != nil
	case m != nil:
		if parts["chord"], err = w.chord(e.Chord); err != nil {
			return nil, false, err
		}
	}
	embed, err = c.encode(parts)
	return embed, moved, err
}

// headers sets the headers of Celery that e needs besides the first four.
func (f Format) headers(h map[string]any, e *task.Envelope) {
	for k, v := range e.Headers {
		if !knownHeaders[k] {
			h[k] = v
		}
	}
	if e.Retries > 0 {
		h["retries"], h["parent_id"] = int64(e.Retries), string(e.ID) // as Celery does
	} else if e.Parent != "" {
		h["parent_id"] = string(e.Parent)
	}
	if e.Origin != "" {
		h["origin"] = e.Origin
	}
	meta := map[string]any{}
	if e.Base != nil {
		base := *e.Base
		base.Overlay(&e.Meta)
		writeMeta(meta, &base)
	} else {
		writeMeta(meta, &e.Meta)
	}
	hard, soft := meta["time_limit"], meta["soft_time_limit"]
	delete(meta, "time_limit")
	delete(meta, "soft_time_limit")
	delete(meta, "priority")
	if hard != nil || soft != nil {
		h["timelimit"] = []any{hard, soft}
	}
	maps.Copy(h, meta)
	f.unknown(h, e.Unknown)
	if text := e.Headers[headerOptions]; text != "" {
		lateOptions(h, text, time.Now())
	}
}

// unknown sets the headers that Decode kept in Unknown. It drops text that another format kept.
func (f Format) unknown(h map[string]any, text []byte) {
	if len(text) == 0 {
		return
	}
	v, err := jsonCoding{}.value(text)
	if err != nil {
		return
	}
	kept, _ := v.(map[string]any)
	for k, v := range kept {
		if _, taken := h[k]; !taken && !knownHeaders[k] {
			h[k] = v
		}
	}
}

// lateOptions sets the headers for those options of a signature that count from when it is sent:
// countdown, and expires as a number of seconds.
func lateOptions(h map[string]any, text string, now time.Time) {
	v, err := jsonCoding{}.value([]byte(text))
	if err != nil {
		return
	}
	options, _ := v.(map[string]any)
	for option, header := range map[string]string{"countdown": "eta", "expires": "expires"} {
		if d, err := seconds(options[option]); err == nil {
			h[header] = FormatTime(now.Add(d))
		}
	}
}

// rest returns what Celery's message does not carry of e.
func (f Format) rest(e *task.Envelope) task.Envelope {
	rest := task.Envelope{
		Meta: carried(&e.Meta), Crashes: e.Crashes, Parked: e.Parked, Life: e.Life, Copy: e.Copy, Burst: e.Burst, Correlation: e.Correlation,
	}
	if e.Base != nil && !e.Base.IsZero() {
		rest.Base = e.Base
	}
	if e.Retries > 0 {
		rest.Parent = e.Parent
	}
	if rest.Meta.ResultStore.Or("") == f.ResultStore {
		rest.Meta.ResultStore = task.Opt[string]{}
	}
	return rest
}

// checkBody returns [serializer.ErrUnknownType] for a content type or a content encoding that
// cannot be read. name is that of the task.
func checkBody(m *broker.Message, name string) (coding, error) {
	c := codingOf(m.ContentType)
	if c == nil {
		return nil, fmt.Errorf("%w: task %s has the content type %s; only JSON and msgpack are read", serializer.ErrUnknownType, shown(name), shown(m.ContentType))
	}
	switch encoding := strings.ToLower(m.Properties["content-encoding"]); encoding {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "binary", "identity":
		return c, nil
	default:
		return nil, fmt.Errorf("%w: task %s has the content encoding %q", serializer.ErrUnknownType, shown(name), utf.Cut(encoding, 64))
	}
}
