package wire

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// A signature is a task that is not sent yet: a map with the keys task, args, kwargs, options,
// subtask_type and immutable. Chains, groups and chords are signatures of the tasks celery.chain,
// celery.group and celery.chord, whose steps are in their keyword arguments.

// signatureWriter converts links to signatures in one coding.
type signatureWriter struct {
	c    coding
	left int // signatures that may still be written
}

// sequence returns the links from l on: l, the link that continues it, and so on. It ends with a
// group, since the tasks behind a group belong to its chord. The links have no continuation any
// more. Returns an error if a link is continued by two links.
func sequence(l *task.Link) ([]task.Link, error) {
	var all []task.Link
	for l != nil {
		one := *l
		next, rest, err := continuation(l.Then)
		if err != nil {
			return nil, err
		}
		one.Then = rest
		all = append(all, one)
		l = next
	}
	return all, nil
}

// continuation splits the successors of a task: next continues its chain, and callbacks do not.
func continuation(then []task.Link) (next *task.Link, callbacks []task.Link, err error) {
	for i := range then {
		if !then[i].Last {
			callbacks = append(callbacks, then[i])
			continue
		}
		if next != nil {
			return nil, nil, errors.New("a task of Celery is continued by one task only")
		}
		next = &then[i]
	}
	return next, callbacks, nil
}

// link returns the signature of l: that of its task, or a chain if l is continued. membership, if
// it is not nil, sets the group of the last task.
func (w *signatureWriter) link(l *task.Link) (any, error) {
	steps, err := w.steps(l, nil)
	if err != nil || len(steps) == 1 {
		if err != nil {
			return nil, err
		}
		return steps[0], nil
	}
	return compound(nameChain, "chain", map[string]any{"tasks": steps}, nil), nil
}

// steps returns the signatures of l and of the links that continue it. m is the membership of the
// last one in a group, or nil.
func (w *signatureWriter) steps(l *task.Link, m *task.Membership) ([]any, error) {
	links, err := sequence(l)
	if err != nil {
		return nil, err
	}
	steps := make([]any, len(links))
	for i := range links {
		var own *task.Membership
		if i == len(links)-1 {
			own = m
		}
		if steps[i], err = w.one(&links[i], own); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// compound returns a signature of a chain, a group or a chord.
func compound(name, kind string, kwargs, options map[string]any) map[string]any {
	if options == nil {
		options = map[string]any{}
	}
	return map[string]any{
		"task": name, "args": []any{}, "kwargs": kwargs, "options": options, "subtask_type": kind, "immutable": false,
	}
}

// one returns the signature of l without its continuation. m is its membership in a group.
func (w *signatureWriter) one(l *task.Link, m *task.Membership) (any, error) {
	if w.left--; w.left < 0 {
		return nil, fmt.Errorf("more than %d steps", serializer.MaxLinks)
	}
	if len(l.Members) > 0 {
		return w.group(l, m)
	}
	options, err := w.options(l, m)
	if err != nil {
		return nil, err
	}
	name := l.Name
	made := call{}
	switch l.Feed {
	case task.FeedWhole:
	case task.FeedPrepend, task.FeedNone:
		if made, err = callOf(w.c, l.ContentType, l.Args); err != nil {
			return nil, fmt.Errorf("step %s: %w", l.Name, err)
		}
	default:
		return nil, fmt.Errorf("step %s: a task of Celery gets the result before it as its first argument or not at all", l.Name)
	}
	if name == task.GatherName { // every Celery application has a task that returns its argument
		zero, err := w.c.encode(0)
		if err != nil {
			return nil, err
		}
		name, made = nameAccumulate, call{kwargs: []member{{"index", zero}}}
	}
	kwargs, err := w.c.joinMembers(made.kwargs)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"task": name, "args": w.c.raw(w.c.join(made.args...)), "kwargs": w.c.raw(kwargs), "options": options,
		"subtask_type": nil, "immutable": l.Feed == task.FeedNone,
	}, nil
}

// group returns the signature of a group with the task that follows it.
func (w *signatureWriter) group(l *task.Link, m *task.Membership) (any, error) {
	switch {
	case l.Each:
		return nil, errors.New("Celery has no task for each element of a list")
	case l.Policy != task.FailFast:
		return nil, fmt.Errorf("a group of Celery fails with its first failure; it cannot have the policy %q", l.Policy)
	case len(l.Then) > 0 || len(l.Else) > 0:
		return nil, errors.New("a group of Celery cannot have callbacks; its members and the task behind it can")
	}
	header := make([]any, len(l.Members))
	for i := range l.Members {
		var err error
		if header[i], err = w.link(&l.Members[i]); err != nil {
			return nil, err
		}
	}
	after := task.Link{Name: task.GatherName}
	if l.Chord != nil {
		after = *l.Chord
	}
	steps, err := w.steps(&after, m)
	if err != nil {
		return nil, err
	}
	body := steps[0]
	if len(steps) > 1 {
		body = compound(nameChain, "chain", map[string]any{"tasks": steps}, nil)
	}
	options := map[string]any{}
	if l.ID != "" {
		options["task_id"] = string(l.ID)
	}
	return compound(nameChord, "chord", map[string]any{"kwargs": map[string]any{}, "header": header, "body": body}, options), nil
}

// options returns the options of the signature of l. m is its membership in a group.
func (w *signatureWriter) options(l *task.Link, m *task.Membership) (map[string]any, error) {
	options := map[string]any{}
	headers := maps.Clone(l.Headers)
	if text := headers[headerOptions]; text != "" {
		delete(headers, headerOptions)
		kept, err := jsonCoding{}.value([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("step %s: options: %w", l.Name, err)
		}
		if known, ok := kept.(map[string]any); ok {
			options = known
		}
	}
	if l.ID != "" {
		options["task_id"] = string(l.ID)
	}
	if l.Queue != "" {
		options["queue"] = l.Queue
	}
	if l.ReplyTo != "" {
		options["reply_to"] = l.ReplyTo
	}
	writeMeta(options, &l.Meta)
	rest := task.Envelope{Meta: carried(&l.Meta), Correlation: l.Correlation.Or("")}
	text, err := writeRest(&rest)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", l.Name, err)
	}
	if text != "" {
		if headers == nil {
			headers = map[string]string{}
		}
		headers[headerRest] = text
	}
	if len(headers) > 0 {
		all := make(map[string]any, len(headers))
		for k, v := range headers {
			all[k] = v
		}
		options["headers"] = all
	}
	for key, links := range map[string][]task.Link{"link": l.Then, "link_error": l.Else} {
		if len(links) == 0 {
			continue
		}
		if options[key], err = w.list(links); err != nil {
			return nil, err
		}
	}
	if m == nil && l.Group != "" { // the task behind a group that is a member itself
		m = &task.Membership{Group: l.Group, Index: l.GroupIndex, Size: l.GroupSize, Chord: l.Chord}
	}
	if m != nil {
		options["group_id"], options["group_index"] = string(m.Group), m.Index
		if m.Chord != nil {
			if options["chord"], err = w.chord(m.Chord); err != nil {
				return nil, err
			}
		}
	}
	return options, nil
}

// list returns the signatures of links that do not continue a chain.
func (w *signatureWriter) list(links []task.Link) ([]any, error) {
	all := make([]any, len(links))
	for i := range links {
		var err error
		if all[i], err = w.link(&links[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// chord returns the signature of the task behind a group. Its membership in another group belongs
// to the last task of its chain.
func (w *signatureWriter) chord(l *task.Link) (any, error) {
	if l.Policy != task.FailFast {
		return nil, fmt.Errorf("a group of Celery fails with its first failure; it cannot have the policy %q", l.Policy)
	}
	body := *l
	var m *task.Membership
	if l.Group != "" && len(l.Members) == 0 {
		m = &task.Membership{Group: l.Group, Index: l.GroupIndex, Size: l.GroupSize, Chord: l.Chord}
		body.Group, body.Chord = "", nil
	}
	steps, err := w.steps(&body, m)
	if err != nil || len(steps) == 1 {
		if err != nil {
			return nil, err
		}
		return steps[0], nil
	}
	return compound(nameChain, "chain", map[string]any{"tasks": steps}, nil), nil
}

// writeMeta sets the options, or headers of the same names, that metadata have.
func writeMeta(options map[string]any, m *task.Metadata) {
	if p, ok := m.Priority.Get(); ok {
		if celery := CeleryPriority(p); celery != 0 {
			options["priority"] = celery
		}
	}
	if t := m.NotBefore.Or(time.Time{}); !t.IsZero() {
		options["eta"] = FormatTime(serializer.FromMilli(serializer.Milli(t)))
	}
	if t := m.Expires.Or(time.Time{}); !t.IsZero() {
		options["expires"] = FormatTime(serializer.FromMilli(serializer.Milli(t)))
	}
	if d := m.TimeLimit.Or(0); d > 0 {
		options["time_limit"] = inSeconds(d)
	}
	if d := m.SoftTimeLimit.Or(0); d > 0 {
		options["soft_time_limit"] = inSeconds(d)
	}
	if m.IgnoreResult.Or(false) {
		options["ignore_result"] = true
	}
}

// callOf returns the call in args, whose content type is that of encoded arguments or of a single
// value, in the coding c.
func callOf(c coding, contentType string, args []byte) (call, error) {
	if len(args) == 0 {
		return call{}, nil
	}
	from := codingOf(contentType)
	if from == nil {
		return call{}, fmt.Errorf("%w: Celery has no arguments of the content type %s", serializer.ErrUnknownType, shown(contentType))
	}
	if serializer.MediaType(contentType) != from.args() {
		if err := from.check(args); err != nil {
			return call{}, err
		}
		args = from.join(from.join(args), []byte(emptyMap(from)))
	}
	made, err := readCall(from, args)
	if err != nil || from == c {
		return made, err
	}
	for i := range made.args {
		if made.args[i], err = convert(made.args[i], from, c); err != nil {
			return call{}, err
		}
	}
	for i := range made.kwargs {
		if made.kwargs[i].value, err = convert(made.kwargs[i].value, from, c); err != nil {
			return call{}, err
		}
	}
	return made, nil
}

// emptyMap returns an encoded map without members.
func emptyMap(c coding) string {
	if c == (jsonCoding{}) {
		return "{}"
	}
	return "\x80"
}
