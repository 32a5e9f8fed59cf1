package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/swarmiji/swarmiji/internal/pack"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Value is a serialized value.
type Value struct {
	ContentType string // "" with no Data: nil
	Data        []byte
}

// isNil reports whether v stands for nil, which is written as nothing at all.
func (v Value) isNil() bool { return len(v.Data) == 0 && v.ContentType == "" }

// Given is what a step hands to those that follow it.
type Given struct {
	Value
	Failure *task.Failure // instead of a result; Value is then this, serialized
}

// Fail makes what a failed step hands on, written as its arguments were, so that its error task reads it the same way.
func (c *Codec) Fail(contentType string, f task.Failure) (Given, error) {
	data, ct, err := c.Marshal(contentType, f)
	if err != nil {
		data, ct, err = c.Marshal("", f)
	}
	return Given{Value: Value{ct, data}, Failure: &f}, err
}

// feed gives a successor what it gets of g.
func (c *Codec) feed(e *task.Envelope, l *task.Link, g Given) error {
	switch l.Feed {
	case task.FeedNone:
		return nil
	case task.FeedWhole:
		e.Args, e.ContentType = g.Data, g.ContentType
		return nil
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
			return fmt.Errorf("%w: arguments with a field %q are no map, but %T", serializer.ErrValue, utf.Cut(l.Field, 128), args)
		}
		if fields == nil {
			fields = make(map[string]any, 1)
		}
		fields[l.Field] = value
		args = fields
	case task.FeedPrepend:
		list, ok := args.([]any)
		if !ok && args != nil {
			return fmt.Errorf("%w: arguments to prepend to are no list, but %T", serializer.ErrValue, args)
		}
		first := []any{value}
		if f := g.Failure; f != nil {
			first = []any{string(f.ID), f.Message, f.Stack}
		}
		args = append(first, list...)
	default:
		return fmt.Errorf("swarmiji: unknown way %q to hand a result on", l.Feed)
	}
	e.Args, e.ContentType, err = c.Marshal(l.ContentType, args)
	return err
}

// Split returns the elements of a serialized list. nil is an empty one.
func (c *Codec) Split(v Value) ([]Value, error) {
	if v.isNil() {
		return nil, nil
	}
	var elements []Value
	switch serializer.MediaType(v.ContentType) {
	case serializer.ContentMsgpack:
		if _, err := pack.Check(v.Data); err != nil {
			return nil, fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
		}
		r := pack.NewReader(v.Data)
		if r.Nil() {
			return nil, nil
		}
		for n := r.ArrayLen(); n > 0 && r.Err() == nil; n-- {
			elements = append(elements, Value{v.ContentType, r.Skip()})
		}
		if err := r.Err(); err != nil {
			return nil, fmt.Errorf("%w: what a Map is given is no list: %w", serializer.ErrMalformed, err)
		}
		return elements, nil
	case serializer.ContentJSON:
		var list []json.RawMessage
		if err := c.Unmarshal(v.ContentType, v.Data, &list); err != nil {
			return nil, fmt.Errorf("what a Map is given is no list: %w", err)
		}
		for _, raw := range list {
			elements = append(elements, Value{v.ContentType, raw})
		}
		return elements, nil
	}
	var list []any
	if err := c.Unmarshal(v.ContentType, v.Data, &list); err != nil {
		return nil, fmt.Errorf("what a Map is given is no list: %w", err)
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

// Joiner makes one list of the ends of a group's members, in a size that is bounded by the messages'. Values that are all
// msgpack or all JSON are put together as they are, so that nothing is lost in a decoder.
type Joiner struct {
	codec   *Codec
	settled bool // elements are of type task.Settled
	parts   []Value
	size    int
}

// Join begins a list; with settled it is one of task.Settled, and takes failures too.
func (c *Codec) Join(settled bool) *Joiner { return &Joiner{codec: c, settled: settled} }

// errListTooLarge says what to do about it.
var errListTooLarge = errors.New("the results of a group do not fit into one message; task.Refer hands them on by reference")

// Add adds a member's end.
func (j *Joiner) Add(v Value, f *task.Failure) error {
	if j.size += len(v.Data) + 1; j.size > j.codec.maxBody {
		return fmt.Errorf("%w: %w", errListTooLarge, j.codec.tooLarge(j.size))
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

// settle puts a value into a task.Settled.
func (c *Codec) settle(v Value) (Value, error) {
	const key = "value"
	switch serializer.MediaType(v.ContentType) {
	case serializer.ContentMsgpack:
		return Value{v.ContentType, append(pack.AppendText(pack.AppendMapLen(nil, 1), key), v.Data...)}, nil
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

// value reads v without a type, to be written by the serializer of the media type to.
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

// ReadJSON reads JSON without a type, to be written by another serializer. Whole numbers stay whole, since most serializers tell them from others.
func ReadJSON(data []byte) (any, error) {
	value, err := readNumbers(data)
	if err != nil {
		return nil, err
	}
	return whole(value), nil
}

// readNumbers reads JSON without a type. Numbers are json.Number, which JSON writes again as they
// were.
func readNumbers(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// whole replaces the numbers in a value that came from JSON.
func whole(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range: infinite, as JSON cannot write it again
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

// List returns the list.
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
			b := pack.AppendArrayLen(make([]byte, 0, j.size+8), len(j.parts))
			for _, p := range j.parts {
				if p.isNil() {
					b = pack.AppendNil(b)
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
