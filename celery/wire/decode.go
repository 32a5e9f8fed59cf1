package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Decode implements [serializer.Format].
//
//   - Returns [serializer.ErrNotMine] unless the headers "task" and "id" are texts.
//   - Returns [serializer.ErrUnknownType] for a content type, a content encoding or a compression
//     that is not supported, with the name of the task.
//   - Returns [serializer.ErrMalformed] for a known header or part of the body of a wrong type.
//   - Other headers with a text become headers of the task. Those with other values are in Unknown.
func (f Format) Decode(m *broker.Message) (*task.Envelope, error) {
	name, named := m.Headers["task"].(string)
	id, ided := m.Headers["id"].(string)
	if !named || !ided {
		return nil, serializer.ErrNotMine
	}
	c, err := checkBody(m, name)
	if err != nil {
		return nil, err
	}
	body := m.Body
	if compression, ok := m.Headers["compression"].(string); ok && compression != "" {
		if body, err = inflate(compression, body); err != nil {
			return nil, fmt.Errorf("task %s: %w", shown(name), err)
		}
	}
	if err := c.check(body); err != nil {
		return nil, fmt.Errorf("task %s: %w", shown(name), err)
	}
	e := &task.Envelope{Version: task.EnvelopeVersion, ID: task.ID(id), Name: name, ReplyTo: m.Properties["reply-to"]}
	err = f.decode(c, e, m, body)
	if err == nil {
		err = serializer.CheckEnvelope(e)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: task %s: %w", serializer.ErrMalformed, shown(name), err)
	}
	return e, nil
}

// decode sets the fields of e from a message and its body.
func (f Format) decode(c coding, e *task.Envelope, m *broker.Message, body []byte) error {
	if err := f.readHeaders(e, m.Headers); err != nil {
		return err
	}
	if p, err := strconv.Atoi(m.Properties["priority"]); err == nil && p > 0 {
		e.Meta.Priority = task.Set(Priority(p))
	}
	parts, err := c.list(body)
	if err != nil || len(parts) != 3 {
		return errors.New("the body is not a list of arguments, keyword arguments and successors")
	}
	args, err := c.list(parts[0])
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	made := call{args: args}
	if made.kwargs, err = c.members(parts[1]); err != nil {
		return fmt.Errorf("keyword arguments: %w", err)
	}
	e.ContentType = c.args()
	if e.Name == nameAccumulate && len(args) == 1 && isGather(c, made.kwargs) {
		e.Name, e.ContentType, e.Args = task.GatherName, c.plain(), args[0]
	} else if e.Args, err = made.write(c); err != nil {
		return err
	}
	e.Meta.Serializer = task.Set(serializer.ContentJSON)
	if f.Results != "" {
		e.Meta.Serializer = task.Set(f.Results)
	}
	if f.ResultStore != "" && !e.Meta.ResultStore.IsSet() {
		e.Meta.ResultStore = task.Set(f.ResultStore)
	}
	if err := f.readEmbed(c, e, parts[2]); err != nil {
		return err
	}
	if e.Chord != nil {
		sizes := ChordSizes(m)
		e.GroupSize = sizes[e.Group]
		for l := e.Chord; l != nil; l = l.Chord {
			l.GroupSize = sizes[l.Group]
		}
	}
	return nil
}

// isGather reports whether the keyword arguments of celery.accumulate select its first argument.
func isGather(c coding, kwargs []member) bool {
	if len(kwargs) != 1 || kwargs[0].name != "index" {
		return false
	}
	var v any
	n, ok := 0.0, false
	if c.decode(kwargs[0].value, &v) == nil {
		n, ok = number(v)
	}
	return ok && n == 0
}

// readHeaders sets the fields of e that are in headers.
func (f Format) readHeaders(e *task.Envelope, h map[string]any) error {
	unknown := map[string]any{}
	for k, v := range h {
		if err := f.readHeader(e, k, v, unknown); err != nil {
			return fmt.Errorf("header %s: %w", shown(k), err)
		}
	}
	if e.Root == e.ID {
		e.Root = ""
	}
	if e.Parent == e.ID { // of a retry
		e.Parent = ""
	}
	if err := f.readOwn(e, h); err != nil {
		return err
	}
	if len(unknown) > 0 {
		text, err := jsonCoding{}.encode(unknown)
		if err != nil {
			return err
		}
		e.Unknown = text
	}
	return nil
}

// readHeader sets the field of e that a header has, or adds it to unknown.
func (f Format) readHeader(e *task.Envelope, name string, v any, unknown map[string]any) (err error) {
	text := func() string {
		s, ok := v.(string)
		if !ok && v != nil {
			err = errType
		}
		return s
	}
	switch name {
	case "root_id":
		e.Root = task.ID(text())
	case "parent_id":
		e.Parent = task.ID(text())
	case "group":
		e.Group = task.ID(text())
	case "origin":
		e.Origin = text()
	case "retries":
		e.Retries, err = count(v)
	case "group_index":
		e.GroupIndex, err = count(v)
	case "eta", "expires", "ignore_result":
		var known bool
		if known, err = readMeta(&e.Meta, name, v); err == nil && !known {
			err = errType
		}
	case "timelimit":
		return readTimeLimit(&e.Meta, v)
	default:
		return f.readOther(e, name, v, unknown)
	}
	return err
}

// readOther keeps a header that the protocol does not have.
func (f Format) readOther(e *task.Envelope, name string, v any, unknown map[string]any) error {
	switch name {
	// of the message, not of the task
	case wire.HeaderLife, wire.HeaderLifeCopy, wire.HeaderHeld, wire.HeaderTurn, wire.HeaderBare:
		return nil
	}
	if knownHeaders[name] || strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-") {
		return nil
	}
	switch v := v.(type) {
	case string:
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[name] = v
	case bool, int64, float64, []any, map[string]any:
		unknown[name] = v
	}
	return nil
}

// readTimeLimit sets the limits of the header "timelimit": a list of the hard and the soft one.
func readTimeLimit(m *task.Metadata, v any) error {
	if v == nil {
		return nil
	}
	limits, ok := v.([]any)
	if !ok || len(limits) != 2 {
		return errors.New("want a list of two time limits")
	}
	for i, name := range [...]string{"time_limit", "soft_time_limit"} {
		if _, err := readMeta(m, name, limits[i]); err != nil {
			return err
		}
	}
	return nil
}

// readOwn sets the fields of e that our own headers have.
func (f Format) readOwn(e *task.Envelope, h map[string]any) error {
	if text, ok := h[headerRest].(string); ok {
		rest, err := readRest(text)
		if err != nil {
			return fmt.Errorf("header %s: %w", headerRest, err)
		}
		meta := rest.Meta
		meta.Overlay(&e.Meta)
		e.Meta, e.Base = meta, rest.Base
		e.Crashes, e.Parked, e.Life, e.Copy, e.Burst = rest.Crashes, rest.Parked, rest.Life, rest.Copy, rest.Burst
		e.Correlation = rest.Correlation
		if rest.Parent != "" {
			e.Parent = rest.Parent
		}
	}
	return nil
}

// readEmbed sets the successors of e, and its membership in a group.
func (f Format) readEmbed(c coding, e *task.Envelope, data []byte) error {
	parts, err := c.members(data)
	if err != nil {
		return fmt.Errorf("successors: %w", err)
	}
	r := &signatureReader{c: c, left: serializer.MaxLinks}
	var next []task.Link
	var last *task.Membership // of the last task of the chain
	for _, part := range parts {
		switch part.name {
		case "callbacks":
			e.Then, err = r.all(part.value)
		case "errbacks":
			e.Else, err = r.all(part.value)
		case "chain":
			var steps [][]byte
			if steps, err = c.list(part.value); err == nil {
				slices.Reverse(steps) // Celery takes the next one from the end
				next, last, err = r.chain(steps)
			}
		case "chord":
			e.Chord, err = r.body(part.value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	for i := range next {
		next[i].Last = len(next) == 1 && e.Chord == nil
	}
	e.Then = append(e.Then, next...)
	if e.Chord == nil && last != nil {
		e.Group, e.GroupIndex, e.Chord = last.Group, last.Index, last.Chord
	}
	if e.Chord == nil {
		return nil
	}
	if e.Group == "" {
		return errors.New("a chord without a group")
	}
	identify(e.Chord, e.Group)
	return nil
}

// chordSizes returns the text of headerChord for e: the group of its chord and the groups that the
// tasks behind it belong to, each with the number of its members. It leaves out unknown numbers.
func chordSizes(e *task.Envelope) string {
	var pairs []string
	add := func(group task.ID, size int) {
		if group != "" && size > 0 {
			pairs = append(pairs, fmt.Sprintf("%s %d", group, size))
		}
	}
	if e.Chord != nil {
		add(e.Group, e.GroupSize)
	}
	for l := e.Chord; l != nil; l = l.Chord {
		add(l.Group, l.GroupSize)
	}
	return strings.Join(pairs, " ")
}

// ChordSizes returns the chords that a message of [Format] counts for, with the numbers of their
// members. A chord whose body is a member of another chord counts for that one too. Returns nil for
// a task without a chord, or if the sender did not know the numbers. The result store needs them
// before the message is published, see Store.SetChordSize of package celery/redis.
func ChordSizes(m *broker.Message) map[task.ID]int {
	text, _ := m.Headers[headerChord].(string)
	if text == "" {
		return nil
	}
	sizes := map[task.ID]int{}
	fields := strings.Fields(text)
	for i := 0; i+1 < len(fields) && len(sizes) < serializer.MaxLinks; i += 2 {
		id := task.ID(fields[i])
		if size, err := strconv.Atoi(fields[i+1]); err == nil && size >= 1 && size <= math.MaxInt32 && id.Check() == nil {
			sizes[id] = size
		}
	}
	return sizes
}
