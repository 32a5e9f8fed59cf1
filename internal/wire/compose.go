package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Value is a serialized value.
type Value struct {
	ContentType string // "" without Data means nil
	Data        []byte
}

// isNil reports whether v represents nil, which has neither data nor content type.
func (v Value) isNil() bool { return len(v.Data) == 0 && v.ContentType == "" }

// Given is the result or failure that a step passes to its successors.
type Given struct {
	Value
	Failure *task.Failure // set if the step failed; Value then holds it serialized
}

// Fail returns the Given of a failed step. It is serialized in the step's content type, so that the
// error task reads it like its arguments. If that is impossible it uses the default serializer.
func (c *Codec) Fail(contentType string, f task.Failure) (Given, error) {
	data, ct, err := c.Marshal(contentType, f)
	if err != nil {
		data, ct, err = c.Marshal("", f)
	}
	return Given{Value: Value{ct, data}, Failure: &f}, err
}

// feed sets the arguments of the successor e from the arguments of its link l and from g, as l.Feed
// says. Returns an error if the arguments of the link have the wrong type.
func (c *Codec) feed(e *task.Envelope, l *task.Link, g Given) error {
	switch l.Feed {
	case task.FeedNone:
		return nil
	case task.FeedWhole:
		e.Args, e.ContentType = g.Data, g.ContentType
		return nil
	}
	if l.Feed == task.FeedPrepend {
		if composed, err := c.prepend(e, l, g); composed {
			return err
		}
	}
	value, err := c.value(g.Value, l.ContentType)
	if err != nil {
		return err
	}
	args, err := c.value(Value{l.ContentType, l.Args}, l.ContentType)
	if err != nil {
		return err
	}
	switch l.Feed {
	case task.FeedInto:
		fields, ok := args.(map[string]any)
		if !ok && args != nil {
			return fmt.Errorf("%w: arguments that get a field %q must be a map, not %T", serializer.ErrValue, utf.Cut(l.Field, 128), args)
		}
		if fields == nil {
			fields = make(map[string]any, 1)
		}
		fields[l.Field] = value
		args = fields
	case task.FeedPrepend:
		list, ok := args.([]any)
		if !ok && args != nil {
			return fmt.Errorf("%w: arguments that get a value prepended must be a list, not %T", serializer.ErrValue, args)
		}
		first := []any{value}
		if f := g.Failure; f != nil {
			first = []any{string(f.ID), f.Message, f.Stack}
		}
		args = append(first, list...)
	default:
		return fmt.Errorf("swarmiji: unknown feed %q of a link", l.Feed)
	}
	e.Args, e.ContentType, err = c.Marshal(l.ContentType, args)
	return err
}

// prepend sets the arguments of e as feed does for FeedPrepend. It returns false and does nothing
// if the serializer of the link's arguments is not a [serializer.Composer].
func (c *Codec) prepend(e *task.Envelope, l *task.Link, g Given) (composed bool, err error) {
	s, err := c.set.For(l.ContentType)
	if err != nil {
		return false, nil // feed returns the same error
	}
	composer, ok := capability.As[serializer.Composer](s)
	if !ok {
		return false, nil
	}
	var args []byte
	if g.Failure != nil {
		args, err = composer.PrependFailure(l.Args, *g.Failure)
	} else {
		var value any
		// as for JSON, so that no digit of a number is lost
		if value, err = c.value(g.Value, serializer.ContentJSON); err == nil {
			args, err = composer.Prepend(l.Args, value)
		}
	}
	if err != nil {
		return true, err
	}
	e.Args, e.ContentType = args, s.ContentType()
	return true, nil
}

// Split returns the elements of a serialized list. nil is an empty list. Returns an error if v is
// not a list.
func (c *Codec) Split(v Value) ([]Value, error) {
	if v.isNil() {
		return nil, nil
	}
	var elements []Value
	switch serializer.MediaType(v.ContentType) {
	case serializer.ContentMsgpack:
		if _, err := rawmsgpack.Check(v.Data); err != nil {
			return nil, fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
		}
		r := rawmsgpack.NewReader(v.Data)
		if r.Nil() {
			return nil, nil
		}
		for n := r.ArrayLen(); n > 0 && r.Err() == nil; n-- {
			elements = append(elements, Value{v.ContentType, r.Skip()})
		}
		if err := r.Err(); err != nil {
			return nil, fmt.Errorf("%w: the input of a Map is not a list: %w", serializer.ErrMalformed, err)
		}
		return elements, nil
	case serializer.ContentJSON:
		var list []json.RawMessage
		if err := c.Unmarshal(v.ContentType, v.Data, &list); err != nil {
			return nil, fmt.Errorf("the input of a Map is not a list: %w", err)
		}
		for _, raw := range list {
			elements = append(elements, Value{v.ContentType, raw})
		}
		return elements, nil
	}
	var list []any
	if err := c.Unmarshal(v.ContentType, v.Data, &list); err != nil {
		return nil, fmt.Errorf("the input of a Map is not a list: %w", err)
	}
	for _, e := range list {
		data, ct, err := c.Marshal(v.ContentType, e)
		if err != nil {
			return nil, err
		}
		elements = append(elements, Value{ct, data})
	}
	return elements, nil
}

// Joiner makes one list of the results of a group's members. The list is limited to the size of a
// message. If all values are msgpack, or all JSON, their bytes are joined unchanged, so that no
// decoder loses information. Not safe for concurrent use.
type Joiner struct {
	codec   *Codec
	settled bool // elements have type task.Settled
	parts   []Value
	size    int
}

// Join returns a Joiner without values. If settled is true, the elements of its list have type
// task.Settled and may be failures.
func (c *Codec) Join(settled bool) *Joiner { return &Joiner{codec: c, settled: settled} }

// errListTooLarge names the solution in its text.
var errListTooLarge = errors.New("the results of a group do not fit into one message; use task.Refer to pass them by reference")

// Add appends the result v of a member, or its failure f if f is not nil. Returns ErrTooLarge if
// the list exceeds the limit of a message.
func (j *Joiner) Add(v Value, f *task.Failure) error {
	if j.size += len(v.Data) + 1; j.size > j.codec.maxBody {
		return fmt.Errorf("%w: %w", errListTooLarge, tooLarge(j.size, j.codec.maxBody))
	}
	if f != nil {
		data, ct, err := j.codec.Marshal("", task.Settled[any]{Failure: f})
		if err != nil {
			return err
		}
		v = Value{ct, data}
	} else if j.settled {
		var err error
		if v, err = j.codec.settle(v); err != nil {
			return err
		}
	}
	j.parts = append(j.parts, v)
	return nil
}

// settle returns v wrapped in a serialized task.Settled.
func (c *Codec) settle(v Value) (Value, error) {
	const key = "value"
	switch serializer.MediaType(v.ContentType) {
	case serializer.ContentMsgpack:
		return Value{v.ContentType, append(rawmsgpack.AppendText(rawmsgpack.AppendMapLen(nil, 1), key), v.Data...)}, nil
	case serializer.ContentJSON:
		return Value{v.ContentType, append(append([]byte(`{"`+key+`":`), v.Data...), '}')}, nil
	}
	var value any
	if err := c.Unmarshal(v.ContentType, v.Data, &value); err != nil {
		return Value{}, err
	}
	data, ct, err := c.Marshal("", map[string]any{key: value})
	return Value{ct, data}, err
}

// value decodes v to a generic value that will be written in the media type to. Numbers of JSON
// stay json.Number if to is JSON. Returns the error of the decoder.
func (c *Codec) value(v Value, to string) (any, error) {
	if serializer.MediaType(v.ContentType) != serializer.ContentJSON {
		var value any
		return value, c.Unmarshal(v.ContentType, v.Data, &value)
	}
	var raw json.RawMessage
	if err := c.Unmarshal(v.ContentType, v.Data, &raw); err != nil {
		return nil, err
	}
	if serializer.MediaType(to) == serializer.ContentJSON {
		return readNumbers(raw)
	}
	return ReadJSON(raw)
}

// ReadJSON decodes JSON to a generic value for another serializer. Whole numbers become int64 or
// uint64, because most serializers distinguish them from floating-point numbers.
func ReadJSON(data []byte) (any, error) {
	value, err := readNumbers(data)
	if err != nil {
		return nil, err
	}
	return whole(value), nil
}

// readNumbers decodes JSON to a generic value. Numbers are json.Number, which JSON writes again
// unchanged.
func readNumbers(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// whole replaces each json.Number in value by int64, uint64 or float64, and returns value.
func whole(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range: infinite, which JSON cannot write again
		return f
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = whole(v[key])
		}
	}
	return value
}

// List returns the serialized list of the added values, in order. Values of one content type,
// msgpack or JSON, are joined without decoding. Otherwise they are decoded and written by the
// default serializer. Returns the error of a value that cannot be decoded or written.
func (j *Joiner) List() (Value, error) {
	ct := ""
	same := true
	for _, p := range j.parts {
		switch {
		case p.isNil():
		case ct == "":
			ct = p.ContentType
		case ct != p.ContentType:
			same = false
		}
	}
	if same {
		switch serializer.MediaType(ct) {
		case serializer.ContentMsgpack:
			b := rawmsgpack.AppendArrayLen(make([]byte, 0, j.size+8), len(j.parts))
			for _, p := range j.parts {
				if p.isNil() {
					b = rawmsgpack.AppendNil(b)
				}
				b = append(b, p.Data...)
			}
			return Value{ct, b}, nil
		case serializer.ContentJSON:
			b := append(make([]byte, 0, j.size+8), '[')
			for i, p := range j.parts {
				if i > 0 {
					b = append(b, ',')
				}
				if p.isNil() {
					b = append(b, "null"...)
				}
				b = append(b, p.Data...)
			}
			return Value{ct, append(b, ']')}, nil
		}
	}
	list := make([]any, len(j.parts))
	for i, p := range j.parts {
		var err error
		if list[i], err = j.codec.value(p, ""); err != nil {
			return Value{}, err
		}
	}
	data, ct, err := j.codec.Marshal("", list)
	return Value{ct, data}, err
}
