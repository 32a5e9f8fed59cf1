package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// Names of the fields of a payload. WorkKit published args, cron and job. The other fields of this
// library are in the object swarmiji, so that no field of another program gets a meaning here.
// Fields at their default are not written: a plain entry has exactly the published bytes. The field
// spec replaces cron if seven cron fields in UTC cannot express the times.
const (
	fieldArgs = "args"
	fieldCron = "cron"
	fieldJob  = "job"
	fieldSpec = "spec"
	fieldOwn  = "swarmiji"
)

// Content is the content of an entry's payload. The payload is a JSON object; fields of other
// programs in it are kept.
type Content struct {
	// Job is the name of the task.
	Job string
	// Args holds the arguments as a JSON list.
	Args json.RawMessage
	// When is the text of the spec. It has seven cron fields in UTC, or, if Zoned is true, any form
	// that [when.Parse] reads.
	When string
	// Zoned reports that the spec is in the field spec, because seven cron fields in UTC cannot
	// express it. Stores that share their layout with other programs hide such entries from those
	// programs.
	Zoned bool
	// Name is the name of the entry ([WithName]). "": none, the entry is found by its content.
	Name string
	// Nonce distinguishes entries that are otherwise equal.
	Nonce string
	// From is the id of the entry that [Schedule.RunNow] copied. "": the entry is not a copy.
	From        string
	Misfire     Misfire
	Overlap     Overlap
	Meta        task.Metadata // Meta, Headers and Correlation are the ones of the call.
	Headers     map[string]string
	Correlation string

	fields map[string]json.RawMessage // fields of the payload that have no field in Content
}

// ownField is one field of the object swarmiji.
type ownField struct {
	name  string
	value any  // a pointer to the field of the Content
	set   bool // the value is not the default, so the field is written
}

// own returns the fields of the object swarmiji, bound to the fields of c: writing to value changes
// c.
func (c *Content) own() []ownField {
	return []ownField{
		{"name", &c.Name, c.Name != ""},
		{"nonce", &c.Nonce, c.Nonce != ""},
		{"from", &c.From, c.From != ""},
		{"misfire", &c.Misfire, c.Misfire != MisfireOnce},
		{"overlap", &c.Overlap, c.Overlap != OverlapAllow},
		{"headers", &c.Headers, len(c.Headers) > 0},
		{"correlation", &c.Correlation, c.Correlation != ""},
		{"meta", (*metadata)(&c.Meta), !c.Meta.IsZero()},
	}
}

// Decode reads a payload, with its keys in any order and any white space. It keeps unknown fields,
// also reads the form of older versions, and does not parse the spec: see [Content.Spec]. Missing
// arguments become an empty list.
//
// Its error wraps [ErrBadEntry]: the payload is not a JSON object, or a field is missing or
// invalid. Do not use the Content then.
func Decode(payload []byte) (*Content, error) {
	c := &Content{}
	if err := json.Unmarshal(payload, &c.fields); err != nil {
		return nil, fmt.Errorf("%w: the payload is not a JSON object: %w", ErrBadEntry, err)
	}
	var cron string
	for _, f := range [...]struct {
		name string
		to   *string
	}{{fieldJob, &c.Job}, {fieldCron, &cron}} {
		if raw, ok := c.fields[f.name]; ok {
			if err := json.Unmarshal(raw, f.to); err != nil {
				return nil, fmt.Errorf("%w: field %q: %w", ErrBadEntry, f.name, err)
			}
		}
	}
	if c.When = cron; cron == "" {
		c.Zoned = read(c.fields[fieldSpec], &c.When) && c.When != ""
	}
	c.Args = c.fields[fieldArgs]
	var own map[string]json.RawMessage
	if !read(c.fields[fieldOwn], &own) || own == nil {
		c.decodeOld()
		return c, c.check()
	}
	for _, f := range c.own() {
		if raw, ok := own[f.name]; ok {
			if err := json.Unmarshal(raw, f.value); err != nil {
				return nil, fmt.Errorf("%w: field %q of %q: %w", ErrBadEntry, f.name, fieldOwn, err)
			}
		}
	}
	delete(c.fields, fieldOwn)
	return c, c.check()
}

// decodeOld reads the fields that older versions wrote beside args, cron and job, and deletes them
// from c.fields. A field whose value is not valid here belongs to another program: it stays in
// c.fields and c gets nothing from it.
func (c *Content) decodeOld() {
	if len(c.fields) <= 3 { // only args, cron and job
		return
	}
	var old Content // holds values that may belong to another program
	own := c.own()
	for i, f := range old.own() {
		raw := c.fields[f.name]
		if f.value == &old.Name { // older versions had no names
			continue
		}
		if read(raw, f.value) && old.Misfire.check() == nil && old.Overlap.check() == nil && read(raw, own[i].value) {
			delete(c.fields, f.name)
		}
		old = Content{}
	}
}

// read decodes a JSON field into to. It reports whether the field exists and could be decoded. It
// returns false for a nil raw; after a failed decoding, to may be changed in part.
func read(raw json.RawMessage, to any) bool { return raw != nil && json.Unmarshal(raw, to) == nil }

// check returns an error that joins all invalid fields and wraps [ErrBadEntry], or nil. Args must
// be a JSON list, When must be set, Job must have 1 to 255 bytes, and the policies must be known.
// It changes c: missing or null Args become an empty list.
func (c *Content) check() error {
	var errs []error
	if c.Args == nil || bytes.Equal(c.Args, []byte("null")) {
		c.Args = json.RawMessage("[]")
	}
	if c.Args[0] != '[' {
		errs = append(errs, fmt.Errorf("%w: args is not a list", ErrBadEntry))
	}
	if c.When == "" {
		errs = append(errs, fmt.Errorf("%w: neither cron nor spec is set", ErrBadEntry))
	}
	if c.Name != "" {
		errs = append(errs, checkText("name", c.Name, 255))
	}
	errs = append(errs, checkText("job", c.Job, 255), c.Misfire.check(), c.Overlap.check())
	return errors.Join(errs...)
}

// Spec parses When: as seven cron fields in UTC, or with [when.Parse] if Zoned is true. Its error
// wraps [when.ErrBadSpec].
func (c *Content) Spec() (when.Spec, error) {
	if !c.Zoned {
		return when.ParseCron(c.When)
	}
	return when.Parse(c.When)
}

// remembered reports whether the store keeps the instants of runs. Entries without a name need them
// only for their overlap policy, and in Redis their layout has no place for them.
func (c *Content) remembered() bool { return c.Name != "" || c.Overlap == OverlapSkip }

// Call returns the call of the task, with the JSON serializer and no id. A list with one argument
// becomes this argument; any other list becomes the arguments as a list.
func (c *Content) Call() task.Call {
	args := c.Args
	if list, err := split(args); err == nil && len(list) == 1 {
		args = list[0]
	}
	call := task.Call{Name: c.Job, Args: args, Meta: c.Meta, Headers: c.Headers, Correlation: c.Correlation}
	call.Meta.Serializer = task.Set(contentType)
	return call
}

// encode returns the payload of c with the times of spec; c.When is not used. The payload has
// sorted keys, no white space, a minimum of escapes, and always the field args. With escapeSlashes,
// "/" is written as "\/". An error wraps [ErrBadEntry].
func encode(c *Content, spec when.Spec, escapeSlashes bool) ([]byte, error) {
	return c.encode(spec, escapeSlashes, func(fields, own map[string]json.RawMessage) error {
		if len(own) == 0 {
			return nil
		}
		raw, err := taskio.Marshal(own)
		fields[fieldOwn] = raw
		return err
	})
}

// encodeOld returns the payload in the form of older versions, which wrote the fields of the object
// swarmiji beside args, cron and job. It returns a nil payload if that form equals the form of
// encode. An error wraps [ErrBadEntry].
func encodeOld(c *Content, spec when.Spec, escapeSlashes bool) ([]byte, error) {
	same := true
	payload, err := c.encode(spec, escapeSlashes, func(fields, own map[string]json.RawMessage) error {
		same = len(own) == 0
		maps.Copy(fields, own)
		return nil
	})
	if same {
		return nil, err
	}
	return payload, err
}

// encode returns the payload of c with the times of spec and with unknown fields that Decode kept.
// The times go to the field cron if seven cron fields can express them, else to spec. put adds the
// fields of this library that are not at their default, own, to the fields of the payload. An error
// wraps [ErrBadEntry].
func (c *Content) encode(spec when.Spec, escapeSlashes bool, put func(fields, own map[string]json.RawMessage) error) ([]byte, error) {
	fields, own := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	maps.Copy(fields, c.fields)
	delete(fields, fieldCron)
	delete(fields, fieldSpec)
	fields[fieldArgs] = c.Args
	var errs []error
	write := func(to map[string]json.RawMessage, name string, value any) {
		raw, err := taskio.Marshal(value)
		errs = append(errs, err)
		to[name] = raw
	}
	write(fields, fieldJob, c.Job)
	if text, ok := sevenFields(spec); ok {
		write(fields, fieldCron, text)
	} else {
		write(fields, fieldSpec, spec.String())
	}
	for _, f := range c.own() {
		if f.set {
			write(own, f.name, f.value)
		}
	}
	errs = append(errs, put(fields, own))
	payload, err := taskio.Marshal(fields)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadEntry, err)
	}
	if escapeSlashes {
		payload = escaped(payload)
	}
	return payload, nil
}

// sevenFields returns the spec as seven cron fields in UTC. It returns false if they cannot express
// the spec: the spec is not a [when.Cron], or [when.Cron.Seven] returns false.
func sevenFields(spec when.Spec) (string, bool) {
	if c, ok := spec.(*when.Cron); ok {
		return c.Seven()
	}
	return "", false
}

// escaped returns a JSON text with each "/" written as "\/", in a new slice. Existing escapes are
// not changed. A "/" occurs only inside JSON strings.
func escaped(payload []byte) []byte {
	out := make([]byte, 0, len(payload)+len(payload)/16)
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case c == '\\' && i+1 < len(payload):
			out = append(out, c, payload[i+1])
			i++
		case c == '/':
			out = append(out, '\\', '/')
		default:
			out = append(out, c)
		}
	}
	return out
}
