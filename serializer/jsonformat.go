package serializer

import (
	"bytes"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// JSONFormat is a [Format] that writes a task as a JSON object. A person or a program in any
// language can write it too:
//
//	{"task": "email.send", "args": {"to": "a@example.org"}}
//
// Only "task" is required. "args" may be any JSON value and is not changed. Arguments that are not
// JSON are in "args_base64", with their "content_type". Without arguments the task gets null. The
// other members are:
//
//	version id root parent group group_index retries crashes parked sent_at_ms origin reply_to
//	correlation headers queue max_retries retry_delay_ms retry rate_limit time_limit_ms
//	soft_time_limit_ms ignore_result idempotent dead_letter serializer compress result_store
//	result_ttl_ms priority fairness_key fairness_weight not_before expires
//	base   (an object with metadata members)
//	group_size copy life
//	then, else, chord   (lists of links, and a link: task id queue args feed field then else and
//	                     metadata; links of groups also have members each policy chord last
//	                     reply_to group group_index group_size; steps with their own headers or
//	                     correlation have headers, without_headers and correlation)
//
// Durations are whole milliseconds. Times are milliseconds since 1970 or RFC 3339 texts. A null
// member counts as missing. Unknown members are kept. The zero value is ready to use.
type JSONFormat struct{}

// ContentType returns [ContentJSON].
func (JSONFormat) ContentType() string { return ContentJSON }

// Encode implements [Format]: it returns a message whose body is e as a JSON object. Returns
// [ErrValue] for envelopes that Decode would refuse, for example with more than about thirty nested
// links.
func (JSONFormat) Encode(e *task.Envelope) (*broker.Message, error) {
	body, err := encodeJSON(e, true)
	if err != nil {
		return nil, err
	}
	return NewMessage(e, ContentJSON, body), nil
}

// Decode implements [Format]. It reads messages with content type application/json, text/plain or
// none whose body is an object with the member "task". For others it returns [ErrNotMine].
//
//   - Returns [ErrMalformed] if the body begins with "{" but is not valid JSON.
//   - A message without "id" gets the broker's message id.
//   - Negative counts and durations are refused. Other values out of range are clamped.
//   - Envelope.Unknown holds unknown members as a JSON object. Those of "base" and links are
//     dropped.
func (JSONFormat) Decode(m *broker.Message) (*task.Envelope, error) {
	switch MediaType(m.ContentType) {
	case "", ContentJSON, "text/plain":
	default:
		return nil, ErrNotMine
	}
	if err := CheckEncoding(m); err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimLeft(m.Body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, ErrNotMine
	}
	if err := ScanJSON(m.Body); err != nil {
		return nil, err
	}
	f := readFields(m.Body)
	if _, ok := f.members["task"]; !ok {
		return nil, ErrNotMine
	}
	e := f.envelope()
	e.ContentType, e.Args = f.args()
	return finishJSON(f, e, m)
}

// finishJSON sets e.Unknown to the members that are left in f, and a missing e.ID to the id of m.
// Then it checks e and returns it. Call it after all known members were read. Returns ErrMalformed
// with the first error of f or of CheckEnvelope.
func finishJSON(f *jsonFields, e *task.Envelope, m *broker.Message) (*task.Envelope, error) {
	e.Unknown = f.rest()
	if e.ID == "" {
		e.ID = task.ID(m.ID)
	}
	if e.Root == e.ID {
		e.Root = ""
	}
	err := f.err
	if err == nil {
		err = CheckEnvelope(e)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return e, nil
}

// envelope removes all known members except those of the arguments, and returns the envelope that
// they describe. It stores the first error in f.err.
func (f *jsonFields) envelope() *task.Envelope {
	e := &task.Envelope{
		Version: task.EnvelopeVersion,
		ID:      task.ID(f.text("id")),
		Root:    task.ID(f.text("root")),
		Parent:  task.ID(f.text("parent")),
		Group:   task.ID(f.text("group")),
		Name:    f.text("task"),
		Meta:    f.metadata("queue"),
		Retries: f.count("retries"),
		Crashes: f.count("crashes"),
		Parked:  f.count("parked"),
		Life:    f.count("life"),
		Origin:  f.text("origin"),
		ReplyTo: f.text("reply_to"),

		Correlation: f.text("correlation"),
	}
	if v, ok := f.integer("version"); ok {
		if v < 1 {
			f.fail("version", "1 or more")
		}
		e.Version = Count(v)
	}
	e.GroupIndex, e.GroupSize = f.size("group_index"), f.size("group_size")
	e.Copy, e.Burst = f.text("copy"), f.text("burst")
	e.SentAt, _ = f.moment("sent_at_ms")
	f.into("headers", &e.Headers, "an object of strings")
	if raw := f.take("base"); raw != nil {
		in := readFields(raw)
		base := in.metadata("queue")
		if in.err != nil && f.err == nil {
			f.err = fmt.Errorf("\"base\": %w", in.err)
		}
		e.Base = &base
	}
	left := MaxLinks
	e.Then = f.links("then", &left)
	e.Else = f.links("else", &left)
	if raw := f.take("chord"); raw != nil {
		chord := f.link("chord", raw, &left)
		e.Chord = &chord
	}
	return e
}

// encodeJSON returns e as a JSON object, with or without its arguments. Returns ErrValue if
// CheckEnvelope or ScanJSON refuses it.
func encodeJSON(e *task.Envelope, withArgs bool) ([]byte, error) {
	if err := CheckEnvelope(e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, err)
	}
	w := &jsonWriter{b: make([]byte, 0, 256+len(e.Args)*4/3+len(e.Unknown))}
	w.open()
	w.member("task", e.Name) // written even if empty: this member makes the object a task
	w.text("id", string(e.ID))
	if withArgs {
		w.args(e.ContentType, e.Args, MaxJSONDepth-1)
	} else {
		w.text("content_type", e.ContentType)
	}
	if e.Version > task.EnvelopeVersion {
		w.member("version", e.Version)
	}
	if e.Root != e.ID {
		w.text("root", string(e.Root))
	}
	w.text("parent", string(e.Parent))
	w.text("group", string(e.Group))
	w.count("group_index", e.GroupIndex)
	w.count("group_size", e.GroupSize)
	w.text("copy", e.Copy)
	w.text("burst", e.Burst)
	w.count("retries", e.Retries)
	w.count("crashes", e.Crashes)
	w.count("parked", e.Parked)
	w.count("life", e.Life)
	if !e.SentAt.IsZero() {
		w.member("sent_at_ms", Milli(e.SentAt))
	}
	w.text("origin", e.Origin)
	w.text("reply_to", e.ReplyTo)
	w.text("correlation", e.Correlation)
	if len(e.Headers) > 0 {
		w.member("headers", e.Headers)
	}
	w.metadata(&e.Meta, "queue")
	if e.Base != nil {
		w.name("base")
		w.open()
		w.metadata(e.Base, "queue")
		w.shut()
	}
	w.links("then", e.Then, MaxJSONDepth-1)
	w.links("else", e.Else, MaxJSONDepth-1)
	if e.Chord != nil {
		w.name("chord")
		w.link(e.Chord, MaxJSONDepth-2)
	}
	w.unknown(e.Unknown)
	w.shut()
	if err := ScanJSON(w.b); err != nil {
		return nil, fmt.Errorf("%w: it could not be decoded again: %w", ErrValue, err)
	}
	return w.b, nil
}

// unknown writes the unknown members that Decode kept. It drops u if it is not a JSON object,
// because another Format kept it.
func (w *jsonWriter) unknown(u []byte) {
	if len(u) > 2 && u[0] == '{' && u[len(u)-1] == '}' {
		w.b = append(w.b, ',')
		w.b = append(w.b, u[1:len(u)-1]...)
	}
}
