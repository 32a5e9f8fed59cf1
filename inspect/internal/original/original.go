// Package original makes copies of tasks from their messages.
package original

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Errors of [Original.Edit].
var (
	// ErrJSON: the arguments are not JSON, or have no form in the content type of the message.
	ErrJSON = errors.New("edited arguments are not valid")
	// ErrNoForm: the original arguments cannot be shown, so they cannot be edited.
	ErrNoForm = errors.New("the arguments of this task have no form as JSON, so they cannot be edited")
)

// Original is the message of a task, of which a copy can be made. Not safe for concurrent use.
type Original struct {
	// Args are the arguments as JSON. nil: no arguments, or these cannot be shown as JSON.
	Args json.RawMessage
	// Refused says why no copy can be made. "": it can.
	Refused string

	envelope *task.Envelope
	format   serializer.Format // of the copy; nil: the first one of the codec
}

// Read reads the message of a task in a queue. Its result shares no memory with m.
func Read(codec *wire.Codec, queue string, m *broker.Message) *Original {
	e, format, err := codec.Decode(m)
	if err != nil {
		return &Original{Refused: "its message cannot be read: " + err.Error()}
	}
	return of(codec, queue, &Original{envelope: e, format: format})
}

// ReadKept reads a task with this id and name that a history has kept.
func ReadKept(codec *wire.Codec, queue string, id task.ID, name string, body []byte, contentType string) *Original {
	e, err := wire.Original(id, name, body, contentType)
	if err != nil {
		return &Original{Refused: "the kept form of it in the history cannot be read: " + err.Error()}
	}
	return of(codec, queue, &Original{envelope: e})
}

// of reads the arguments of o, and returns it.
func of(codec *wire.Codec, queue string, o *Original) *Original {
	e := o.envelope
	switch {
	case strings.HasSuffix(e.ContentType, "+"+serializer.CodingSealed):
		o.Refused = "its arguments are sealed"
		return o
	case e.Headers[task.HeaderConditions] != "":
		o.Refused = "it has conditions: run its job again"
		return o
	}
	if err := codec.Open(queue, e); err != nil {
		o.Refused = "its arguments cannot be read: " + err.Error()
		return o
	}
	e.Args = slices.Clone(e.Args)
	if e.ContentType != serializer.ContentRaw || utf8.Valid(e.Args) {
		// arguments that have no form in JSON are copied as they are
		o.Args, _ = Readable(e.ContentType, e.Args)
	}
	return o
}

// Copy returns a new task, id, with the name, the metadata and the headers of the original, and its
// message. It is a task of its own: it has no workflow, starts at once and does not expire. node is
// the name of this process. Returns the errors of the codec.
func (o *Original) Copy(codec *wire.Codec, queue string, id task.ID, node string) (*task.Envelope, *broker.Message, error) {
	e := wire.Again(id, o.envelope)
	e.SentAt, e.Origin = time.Now(), node
	if o.format == nil {
		m, err := codec.Encode(queue, e)
		return e, m, err
	}
	m, err := codec.EncodeAs(o.format, queue, e, nil)
	return e, m, err
}

// Edit replaces the arguments by edited ones, in the content type of the original. No edited
// arguments, and equal ones, leave the bytes as they are. Returns [ErrJSON] or [ErrNoForm].
func (o *Original) Edit(codec *wire.Codec, edited json.RawMessage) (changed bool, err error) {
	e := o.envelope
	if len(bytes.TrimSpace(edited)) == 0 {
		return false, nil
	}
	if len(e.Args) > 0 && o.Args == nil {
		return false, ErrNoForm
	}
	var now, before bytes.Buffer
	if err := json.Compact(&now, edited); err != nil {
		return false, fmt.Errorf("%w: the arguments are no JSON: %w", ErrJSON, err)
	}
	if json.Compact(&before, o.Args) == nil && bytes.Equal(now.Bytes(), before.Bytes()) {
		return false, nil
	}
	var v any
	switch e.ContentType {
	case serializer.ContentJSON:
		v = json.RawMessage(now.Bytes())
	case serializer.ContentRaw:
		var text string
		if err := json.Unmarshal(edited, &text); err != nil {
			return false, fmt.Errorf("%w: the arguments of this task are a text, which is written in quotes", ErrJSON)
		}
		v = []byte(text)
	default:
		d := json.NewDecoder(bytes.NewReader(edited))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return false, fmt.Errorf("%w: the arguments are no JSON: %w", ErrJSON, err)
		}
		v = exact(v)
	}
	e.Args, e.ContentType, err = codec.Marshal(e.ContentType, v)
	if err != nil {
		return false, fmt.Errorf("%w: the arguments cannot be encoded: %w", ErrJSON, err)
	}
	return true, nil
}

// exact replaces the numbers of v by integers where they are integers, so that large ones stay as
// they are.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // JSON has no other numbers
		return f
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}
