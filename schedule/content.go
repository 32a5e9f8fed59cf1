package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/task"
)

// The fields of a payload. WorkKit published the first three; the others are there only when they say something, so that the bytes
// of a plain entry are the published ones.
const (
	fieldArgs        = "args"
	fieldCron        = "cron"
	fieldJob         = "job"
	fieldCorrelation = "correlation"
	fieldFrom        = "from"
	fieldHeaders     = "headers"
	fieldMeta        = "meta"
	fieldMisfire     = "misfire"
	fieldNonce       = "nonce"
	fieldOverlap     = "overlap"
	fieldSpec        = "spec"
)

// Content is what an entry's payload says: a JSON object of which the fields of others are kept.
type Content struct {
	// Job is the name of the task.
	Job string
	// Args is the JSON list of its arguments.
	Args json.RawMessage
	// When is the text of the spec: seven fields of cron in UTC, or, where Zoned, whatever [Parse] reads.
	When string
	// Zoned: the spec stands in a field of ours, because seven fields of UTC cannot say it. Stores that share their layout with
	// others refuse such an entry.
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

	fields map[string]json.RawMessage // all of them
}

// Decode reads a payload, in any order of keys and with any blanks. Its error wraps [ErrBadEntry].
func Decode(payload []byte) (*Content, error) {
	c := &Content{}
	if err := json.Unmarshal(payload, &c.fields); err != nil {
		return nil, fmt.Errorf("%w: the payload is no JSON object: %w", ErrBadEntry, err)
	}
	var spec, cron string
	for _, f := range []struct {
		name string
		to   any
	}{
		{fieldJob, &c.Job},
		{fieldCron, &cron},
		{fieldSpec, &spec},
		{fieldNonce, &c.Nonce},
		{fieldFrom, &c.From},
		{fieldMisfire, &c.Misfire},
		{fieldOverlap, &c.Overlap},
		{fieldHeaders, &c.Headers},
		{fieldCorrelation, &c.Correlation},
		{fieldMeta, (*metadata)(&c.Meta)},
	} {
		if raw, ok := c.fields[f.name]; ok {
			if err := json.Unmarshal(raw, f.to); err != nil {
				return nil, fmt.Errorf("%w: field %q: %w", ErrBadEntry, f.name, err)
			}
		}
	}
	if c.When = cron; cron == "" {
		c.When, c.Zoned = spec, spec != ""
	}
	c.Args = c.fields[fieldArgs]
	return c, c.check()
}

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
func (c *Content) Spec() (Spec, error) {
	if !c.Zoned {
		return ParseCron(c.When)
	}
	return Parse(c.When)
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
func encode(c *Content, spec Spec, escapeSlashes bool) ([]byte, error) {
	fields := maps.Clone(c.fields)
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	seven, ok := "", false
	if s, is := spec.(interface{ Seven() (string, bool) }); is {
		seven, ok = s.Seven()
	}
	text := spec.String()
	if ok {
		text = ""
	}
	fields[fieldArgs] = c.Args
	errs := []error{}
	put := func(name string, value any, there bool) {
		delete(fields, name)
		if there {
			raw, err := errand.Marshal(value)
			errs = append(errs, err)
			fields[name] = raw
		}
	}
	put(fieldJob, c.Job, true)
	put(fieldCron, seven, ok)
	put(fieldSpec, text, !ok)
	put(fieldNonce, c.Nonce, c.Nonce != "")
	put(fieldFrom, c.From, c.From != "")
	put(fieldMisfire, c.Misfire, c.Misfire != MisfireOnce)
	put(fieldOverlap, c.Overlap, c.Overlap != OverlapAllow)
	put(fieldHeaders, c.Headers, len(c.Headers) > 0)
	put(fieldCorrelation, c.Correlation, c.Correlation != "")
	put(fieldMeta, metadata(c.Meta), !c.Meta.IsZero())
	payload, err := errand.Marshal(fields)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadEntry, err)
	}
	if escapeSlashes {
		payload = escaped(payload)
	}
	return payload, nil
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
