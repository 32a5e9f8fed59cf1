package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// signatureReader converts signatures to links.
type signatureReader struct {
	c    coding
	left int // signatures that may still be read
}

// signature is a signature whose parts are still encoded.
type signature struct {
	name      string
	args      []byte
	kwargs    []member
	options   []member
	immutable bool
}

// read reads one signature. Returns an error for a value that is not a map, or has no task.
func (r *signatureReader) read(data []byte) (*signature, error) {
	if r.left--; r.left < 0 {
		return nil, fmt.Errorf("more than %d steps", serializer.MaxLinks)
	}
	members, err := r.c.members(data)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	s := &signature{}
	for _, m := range members {
		switch m.name {
		case "task":
			s.name, err = r.text(m.value)
		case "args":
			s.args = m.value
		case "kwargs":
			s.kwargs, err = r.c.members(m.value)
		case "options":
			s.options, err = r.c.members(m.value)
		case "immutable":
			err = r.c.decode(m.value, &s.immutable)
		}
		if err != nil {
			return nil, fmt.Errorf("signature: %s: %w", m.name, err)
		}
	}
	if s.name == "" {
		return nil, errors.New("signature: no task")
	}
	return s, nil
}

// text returns a text, "" for null.
func (r *signatureReader) text(data []byte) (string, error) {
	var v any
	err := r.c.decode(data, &v)
	s, ok := v.(string)
	if err == nil && !ok && v != nil {
		err = errType
	}
	return s, err
}

// all returns the links of a list of signatures, each for itself, or of one signature.
func (r *signatureReader) all(data []byte) ([]task.Link, error) {
	list, err := r.listOf(data)
	if err != nil {
		return nil, err
	}
	var links []task.Link
	for _, one := range list {
		more, _, err := r.chain([][]byte{one})
		if err != nil {
			return nil, err
		}
		links = append(links, more...)
	}
	return links, nil
}

// listOf returns the elements of a list of signatures. One signature is a list of one: a header of
// a chord may be a group, whose tasks are then the list.
func (r *signatureReader) listOf(data []byte) ([][]byte, error) {
	list, err := r.c.list(data)
	if err == nil {
		return list, nil
	}
	if _, err := r.c.members(data); err != nil {
		return nil, errors.New("want a list of signatures")
	}
	return [][]byte{data}, nil
}

// chain returns the links of tasks that follow each other, and the membership of the last one in a
// group. There are several links only if the chain begins with a group that no task follows.
func (r *signatureReader) chain(list [][]byte) ([]task.Link, *task.Membership, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	s, err := r.read(list[0])
	if err != nil {
		return nil, nil, err
	}
	rest := list[1:]
	switch s.name {
	case nameChain:
		tasks, err := r.part(s, "tasks")
		if err != nil {
			return nil, nil, err
		}
		return r.chain(append(append([][]byte(nil), tasks...), rest...))
	case nameGroup:
		tasks, err := r.part(s, "tasks")
		if err != nil {
			return nil, nil, err
		}
		if len(rest) > 0 {
			return r.chord(s, tasks, rest)
		}
		var links []task.Link
		for _, one := range tasks {
			more, _, err := r.chain([][]byte{one})
			if err != nil {
				return nil, nil, err
			}
			links = append(links, more...)
		}
		return links, nil, nil
	case nameChord:
		tasks, err := r.part(s, "header")
		if err != nil {
			return nil, nil, err
		}
		for _, m := range s.kwargs {
			if m.name == "body" {
				return r.chord(s, tasks, append([][]byte{m.value}, rest...))
			}
		}
		return nil, nil, errors.New("signature: a chord without a body")
	}
	l, m, err := r.one(s)
	if err != nil {
		return nil, nil, err
	}
	next, last, err := r.chain(rest)
	if err != nil {
		return nil, nil, err
	}
	if len(rest) > 0 {
		m = last
	}
	for i := range next {
		next[i].Last = len(next) == 1
	}
	l.Then = append(l.Then, next...)
	return []task.Link{l}, m, nil
}

// part returns the signatures in a keyword argument of a chain, a group or a chord. Those of a
// group, which is the header of a chord, are its tasks.
func (r *signatureReader) part(s *signature, name string) ([][]byte, error) {
	for _, m := range s.kwargs {
		if m.name != name {
			continue
		}
		list, err := r.listOf(m.value)
		if err != nil {
			return nil, fmt.Errorf("signature: %s: %w", name, err)
		}
		if len(list) == 1 {
			if inner, err := r.read(list[0]); err == nil && inner.name == nameGroup {
				return r.part(inner, "tasks")
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("signature: %s without %s", s.name, name)
}

// chord returns the link of a group of tasks, with the tasks behind it, and the membership of the
// last one in another group.
func (r *signatureReader) chord(s *signature, tasks, body [][]byte) ([]task.Link, *task.Membership, error) {
	l := task.Link{}
	for _, m := range s.options {
		if m.name == "task_id" {
			id, err := r.text(m.value)
			if err != nil {
				return nil, nil, fmt.Errorf("signature: task_id: %w", err)
			}
			l.ID = task.ID(id)
		}
	}
	for _, one := range tasks {
		members, _, err := r.chain([][]byte{one})
		if err != nil {
			return nil, nil, err
		}
		l.Members = append(l.Members, members...)
	}
	next, m, err := r.chain(body)
	if err != nil {
		return nil, nil, err
	}
	if len(tasks) == 0 {
		return next, m, r.feedNothing(next)
	}
	if len(l.Members) == 0 || len(next) == 0 {
		return nil, nil, errors.New("signature: a chord without tasks")
	}
	after := next[0]
	if len(next) > 1 || len(after.Members) > 0 { // only one task can follow the group
		for i := range next {
			next[i].Last = len(next) == 1
		}
		after = task.Link{Name: task.GatherName, Feed: task.FeedWhole, Then: next}
	}
	l.Chord = &after
	return []task.Link{l}, m, nil
}

// feedNothing gives links the results of a group without tasks, an empty list, as Celery does.
func (r *signatureReader) feedNothing(links []task.Link) (err error) {
	for i := range links {
		l := &links[i]
		switch {
		case len(l.Members) > 0:
			err = r.feedNothing(l.Members)
		case l.Feed == task.FeedPrepend:
			l.Args, err = prepend(r.c, l.Args, []any{})
			l.Feed = task.FeedNone
		case l.Feed != task.FeedNone:
			err = errors.New("signature: a chord without tasks")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// one returns the link of a task's signature, and the membership in a group that its options have.
func (r *signatureReader) one(s *signature) (task.Link, *task.Membership, error) {
	l := task.Link{Name: s.name, Feed: task.FeedPrepend, ContentType: r.c.args()}
	if s.immutable {
		l.Feed = task.FeedNone
	}
	made := call{kwargs: s.kwargs}
	var err error
	if s.args != nil {
		if made.args, err = r.c.list(s.args); err != nil {
			return l, nil, fmt.Errorf("step %s: args: %w", shown(s.name), err)
		}
	}
	if l.Args, err = made.write(r.c); err != nil {
		return l, nil, fmt.Errorf("step %s: %w", shown(s.name), err)
	}
	if s.name == nameAccumulate && !s.immutable && len(made.args) == 0 {
		l.Name, l.Feed, l.Args, l.ContentType = task.GatherName, task.FeedWhole, nil, ""
	}
	m, err := r.options(&l, s.options)
	if err != nil {
		return l, nil, fmt.Errorf("step %s: option %w", shown(s.name), err)
	}
	return l, m, nil
}

// options sets the fields of l from options. Options without a field are kept in a header of l, see
// headerOptions.
func (r *signatureReader) options(l *task.Link, options []member) (*task.Membership, error) {
	var m task.Membership
	var kept []member
	var exchange, key string
	for _, o := range options {
		err := error(nil)
		switch o.name {
		case "task_id":
			var id string
			id, err = r.text(o.value)
			l.ID = task.ID(id)
		case "queue":
			l.Queue, err = r.text(o.value)
		case "exchange":
			exchange, err = r.text(o.value)
		case "routing_key":
			key, err = r.text(o.value)
		case "reply_to":
			l.ReplyTo, err = r.text(o.value)
		case "link":
			var then []task.Link
			then, err = r.all(o.value)
			l.Then = append(l.Then, then...)
		case "link_error":
			l.Else, err = r.all(o.value)
		case "group_id":
			var id string
			id, err = r.text(o.value)
			m.Group = task.ID(id)
		case "group_index":
			var v any
			if err = r.c.decode(o.value, &v); err == nil {
				m.Index, err = count(v)
			}
		case "chord":
			m.Chord, err = r.body(o.value)
		case "headers":
			err = r.headers(l, o.value)
		case "root_id", "parent_id", "origin", "retries": // of the task that sends it
		default:
			var v any
			var known bool
			if err = r.c.decode(o.value, &v); err == nil {
				known, err = readMeta(&l.Meta, o.name, v)
			}
			if err == nil && !known {
				var text []byte
				text, err = convert(o.value, r.c, jsonCoding{})
				kept = append(kept, member{o.name, text})
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shown(o.name), err)
		}
	}
	if l.Queue == "" && exchange == "" {
		l.Queue = key
	}
	if len(kept) > 0 {
		text, err := jsonCoding{}.joinMembers(kept)
		if err != nil {
			return nil, err
		}
		if l.Headers == nil {
			l.Headers = map[string]string{}
		}
		l.Headers[headerOptions] = string(text)
	}
	if m.Group == "" || m.Chord == nil {
		return nil, nil
	}
	identify(m.Chord, m.Group)
	return &m, nil
}

// identify gives an id to a task behind a group that does not have one, such as a step that
// collects the results. The id is the same in every call.
func identify(chord *task.Link, group task.ID) {
	if chord.ID == "" {
		chord.ID = task.Derive(group, "chord")
	}
}

// body returns the link of the task behind a group, nil for null.
func (r *signatureReader) body(data []byte) (*task.Link, error) {
	var v any
	if r.c.decode(data, &v) == nil && v == nil {
		return nil, nil
	}
	links, m, err := r.chain([][]byte{data})
	if err != nil {
		return nil, err
	}
	if len(links) == 0 {
		return nil, errors.New("want a signature")
	}
	after := links[0]
	if len(links) > 1 || len(after.Members) > 0 {
		for i := range links {
			links[i].Last = len(links) == 1
		}
		after = task.Link{Name: task.GatherName, Then: links}
	}
	if m != nil {
		after.Group, after.GroupIndex, after.Chord = m.Group, m.Index, m.Chord
	}
	return &after, nil
}

// headers sets the headers of l, and what our own header of them holds.
func (r *signatureReader) headers(l *task.Link, data []byte) error {
	members, err := r.c.members(data)
	if err != nil {
		return err
	}
	for _, h := range members {
		var v any
		if err := r.c.decode(h.value, &v); err != nil {
			return err
		}
		text, ok := v.(string)
		switch {
		case ok && h.name == headerRest:
			rest, err := readRest(text)
			if err != nil {
				return err
			}
			meta := rest.Meta
			meta.Overlay(&l.Meta)
			l.Meta = meta
			if rest.Correlation != "" {
				l.Correlation = task.Set(rest.Correlation)
			}
		case ok:
			if l.Headers == nil {
				l.Headers = map[string]string{}
			}
			l.Headers[h.name] = text
		}
	}
	return nil
}

// readMeta sets in m the key that an option or a header has. It returns false for another name. A
// nil value sets nothing.
func readMeta(m *task.Metadata, name string, v any) (bool, error) {
	var err error
	switch name {
	case "priority":
		var n int
		if n, err = count(v); err == nil && n > 0 {
			m.Priority = task.Set(Priority(n))
		}
	case "eta", "expires":
		text, ok := v.(string)
		if !ok {
			if v != nil && name == "expires" {
				return false, nil // seconds from when it is sent
			}
			return true, wantNil(v)
		}
		var t time.Time
		if t, err = ParseTime(text); err != nil {
			break
		}
		if name == "eta" {
			m.NotBefore = task.Set(t)
		} else {
			m.Expires = task.Set(t)
		}
	case "time_limit", "soft_time_limit":
		if v == nil {
			return true, nil
		}
		var d time.Duration
		if d, err = seconds(v); err != nil || d == 0 {
			break
		}
		if name == "time_limit" {
			m.TimeLimit = task.Set(d)
		} else {
			m.SoftTimeLimit = task.Set(d)
		}
	case "ignore_result":
		yes, ok := v.(bool)
		if !ok {
			return true, wantNil(v)
		}
		if yes {
			m.IgnoreResult = task.Set(true)
		}
	default:
		return false, nil
	}
	return true, err
}

// wantNil returns an error unless v is nil.
func wantNil(v any) error {
	if v == nil {
		return nil
	}
	return errType
}
