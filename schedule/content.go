package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// The fields of a payload. WorkKit published args, cron and job. What else an entry of ours says
// stands in the object swarmiji, so that no field of another program has a meaning here. All of
// them are there only when they say something: the bytes of a plain entry are the published ones.
// spec stands in the place of cron, which entries of other programs have.
const (
	fieldArgs = "args"
	fieldCron = "cron"
	fieldJob  = "job"
	fieldSpec = "spec"
	fieldOwn  = "swarmiji"
)

// Content is what an entry's payload says: a JSON object of which the fields of others are kept.
type Content struct {
	// Job is the name of the task.
	Job string
	// Args is the JSON list of its arguments.
	Args json.RawMessage
	// When is the text of the spec: seven fields of cron in UTC, or, where Zoned, whatever [when.Parse] reads.
	When string
	// Zoned: the spec stands in a field of ours, because seven fields of UTC cannot say it. Stores that share their layout with
	// others keep such an entry where only programs of ours see it.
	Zoned bool
	// Nonce sets entries apart that are otherwise equal.
	Nonce string
	// From is the id of the entry of which this one is a run out of turn.
	From        string
	Misfire     Misfire
	Overlap     Overlap
	Meta        task.Metadata // of the call
	Headers     map[string]string
	Correlation string

	fields map[string]json.RawMessage // those of the payload's object that are not read into the others
}

// ownField is a field of ours.
type ownField struct {
	name  string
	value any  // a pointer into the Content
	says  bool // it is not at its default, and is written
}

// own returns the fields of ours.
func (c *Content) own() []ownField {
	return []ownField{
		{"nonce", &c.Nonce, c.Nonce != ""},
		{"from", &c.From, c.From != ""},
		{"misfire", &c.Misfire, c.Misfire != MisfireOnce},
		{"overlap", &c.Overlap, c.Overlap != OverlapAllow},
		{"headers", &c.Headers, len(c.Headers) > 0},
		{"correlation", &c.Correlation, c.Correlation != ""},
		{"meta", (*metadata)(&c.Meta), !c.Meta.IsZero()},
	}
}

// Decode reads a payload, in any order of keys and with any blanks. Its error wraps [ErrBadEntry].
func Decode(payload []byte) (*Content, error) {
	c := &Content{}
	if err := json.Unmarshal(payload, &c.fields); err != nil {
		return nil, fmt.Errorf("%w: the payload is no JSON object: %w", ErrBadEntry, err)
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

// decodeOld reads the fields of ours where older programs wrote them: among those of everybody.
// What does not read as one of ours belongs to another program.
func (c *Content) decodeOld() {
	if len(c.fields) <= 3 { // args, cron and job
		return
	}
	var old Content // takes what may turn out not to be of ours
	own := c.own()
	for i, f := range old.own() {
		raw := c.fields[f.name]
		if read(raw, f.value) && old.Misfire.check() == nil && old.Overlap.check() == nil && read(raw, own[i].value) {
			delete(c.fields, f.name)
		}
		old = Content{}
	}
}

// read reads a field, and reports whether it is there and reads so.
func read(raw json.RawMessage, to any) bool { return raw != nil && json.Unmarshal(raw, to) == nil }

// check returns what is wrong with a payload whose fields could be read.
func (c *Content) check() error {
	var errs []error
	if c.Args == nil || bytes.Equal(c.Args, []byte("null")) {
		c.Args = json.RawMessage("[]")
	}
	if c.Args[0] != '[' {
		errs = append(errs, fmt.Errorf("%w: args is no list", ErrBadEntry))
	}
	if c.When == "" {
		errs = append(errs, fmt.Errorf("%w: it does not say when: there is no cron", ErrBadEntry))
	}
	errs = append(errs, checkText("job", c.Job, 255), c.Misfire.check(), c.Overlap.check())
	return errors.Join(errs...)
}

// Spec reads the spec.
func (c *Content) Spec() (when.Spec, error) {
	if !c.Zoned {
		return when.ParseCron(c.When)
	}
	return when.Parse(c.When)
}

// Call makes the call of the task, whose arguments are those of the payload: of a list of one its element, else the list.
func (c *Content) Call() task.Call {
	args := c.Args
	if list, err := split(args); err == nil && len(list) == 1 {
		args = list[0]
	}
	call := task.Call{Name: c.Job, Args: args, Meta: c.Meta, Headers: c.Headers, Correlation: c.Correlation}
	call.Meta.Serializer = task.Set(contentType)
	return call
}

// encode writes a payload: sorted keys, no blanks, nothing escaped that need not be, args always.
func encode(c *Content, spec when.Spec, escapeSlashes bool) ([]byte, error) {
	return c.encode(spec, escapeSlashes, func(fields, own map[string]json.RawMessage) error {
		if len(own) == 0 {
			return nil
		}
		raw, err := errand.Marshal(own)
		fields[fieldOwn] = raw
		return err
	})
}

// encodeOld writes a payload as older programs did; nil: it is the same.
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

// encode writes a payload, in which put places the fields of ours.
func (c *Content) encode(spec when.Spec, escapeSlashes bool, put func(fields, own map[string]json.RawMessage) error) ([]byte, error) {
	fields, own := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	maps.Copy(fields, c.fields)
	delete(fields, fieldCron)
	delete(fields, fieldSpec)
	fields[fieldArgs] = c.Args
	var errs []error
	write := func(to map[string]json.RawMessage, name string, value any) {
		raw, err := errand.Marshal(value)
		errs = append(errs, err)
		to[name] = raw
	}
	write(fields, fieldJob, c.Job)
	if seven, ok := seven(spec); ok {
		write(fields, fieldCron, seven)
	} else {
		write(fields, fieldSpec, spec.String())
	}
	for _, f := range c.own() {
		if f.says {
			write(own, f.name, f.value)
		}
	}
	errs = append(errs, put(fields, own))
	payload, err := errand.Marshal(fields)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadEntry, err)
	}
	if escapeSlashes {
		payload = escaped(payload)
	}
	return payload, nil
}

// seven returns the seven fields of UTC that say a spec, if there are any.
func seven(spec when.Spec) (string, bool) {
	if c, ok := spec.(*when.Cron); ok {
		return c.Seven()
	}
	return "", false
}

// escaped writes each "/" of a JSON text, where it stands inside of texts only, as "\/". What is escaped already stays.
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
