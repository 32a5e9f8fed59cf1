package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	lib "github.com/vmihailenco/msgpack/v5"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
)

// coding is one of the two encodings of a message's body. Its methods take encoded values that have
// passed check.
type coding interface {
	message() string // content type of messages
	args() string    // content type of encoded arguments
	plain() string   // content type of a single value
	check(data []byte) error
	// list returns the elements of a list, and members the members of a map in their order. Both
	// return an error for another value, and no elements for null.
	list(data []byte) ([][]byte, error)
	members(data []byte) ([]member, error)
	join(elements ...[]byte) []byte
	joinMembers(members []member) ([]byte, error)
	decode(data []byte, v any) error
	encode(v any) ([]byte, error)
	// value returns a generic value: whole numbers are int64 or uint64.
	value(data []byte) (any, error)
	// raw returns an encoded value in a form that encode writes unchanged.
	raw(data []byte) any
}

// member is a member of an encoded map.
type member struct {
	name  string
	value []byte
}

// codingOf returns the coding of a content type, that of messages, of arguments or of single
// values. It returns nil for others.
func codingOf(contentType string) coding {
	switch serializer.MediaType(contentType) {
	case serializer.ContentJSON, ContentJSONArgs:
		return jsonCoding{}
	case ContentMsgpack, ContentMsgpackArgs, serializer.ContentMsgpack:
		return msgpackCoding{}
	}
	return nil
}

// convert returns data, which is encoded in from, in the encoding to.
func convert(data []byte, from, to coding) ([]byte, error) {
	if from == to {
		return data, nil
	}
	v, err := from.value(data)
	if err != nil {
		return nil, err
	}
	return to.encode(v)
}

// jsonCoding is JSON.
type jsonCoding struct{}

func (jsonCoding) message() string         { return serializer.ContentJSON }
func (jsonCoding) args() string            { return ContentJSONArgs }
func (jsonCoding) plain() string           { return serializer.ContentJSON }
func (jsonCoding) check(data []byte) error { return serializer.ScanJSON(data) }
func (jsonCoding) raw(data []byte) any     { return json.RawMessage(data) }

// list implements coding.
func (jsonCoding) list(data []byte) ([][]byte, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return nil, fmt.Errorf("want a list: %w", err)
	}
	list := make([][]byte, len(elements))
	for i, e := range elements {
		list[i] = e
	}
	return list, nil
}

// members implements coding.
func (jsonCoding) members(data []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		if t == nil && err == nil {
			return nil, nil
		}
		return nil, errors.New("want a map")
	}
	var all []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		all = append(all, member{name.(string), value})
	}
	return all, nil
}

// join implements coding.
func (jsonCoding) join(elements ...[]byte) []byte {
	b := append([]byte(nil), '[')
	for i, e := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	return append(b, ']')
}

// joinMembers implements coding.
func (jsonCoding) joinMembers(members []member) ([]byte, error) {
	b := append([]byte(nil), '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}'), nil
}

// decode implements coding.
func (jsonCoding) decode(data []byte, v any) error {
	if target, ok := v.(*any); ok {
		value, err := wire.ReadJSON(data)
		*target = value
		return err
	}
	return json.Unmarshal(data, v)
}

// encode implements coding.
func (jsonCoding) encode(v any) ([]byte, error) { return appendJSON(nil, v) }

// value implements coding.
func (jsonCoding) value(data []byte) (any, error) { return wire.ReadJSON(data) }

// msgpackCoding is MessagePack.
type msgpackCoding struct{}

func (msgpackCoding) message() string { return ContentMsgpack }
func (msgpackCoding) args() string    { return ContentMsgpackArgs }
func (msgpackCoding) plain() string   { return serializer.ContentMsgpack }
func (msgpackCoding) raw(data []byte) any {
	return lib.RawMessage(data)
}
func (msgpackCoding) check(data []byte) error { return msgpack.Scan(data) }

// list implements coding.
func (msgpackCoding) list(data []byte) ([][]byte, error) {
	r := rawmsgpack.NewReader(data)
	if r.Nil() {
		return nil, nil
	}
	var list [][]byte
	for n := r.ArrayLen(); n > 0 && r.Err() == nil; n-- {
		list = append(list, r.Skip())
	}
	return list, r.Err()
}

// members implements coding.
func (msgpackCoding) members(data []byte) ([]member, error) {
	r := rawmsgpack.NewReader(data)
	if r.Nil() {
		return nil, nil
	}
	var all []member
	seen := map[string]bool{}
	for n := r.MapLen(); n > 0 && r.Err() == nil; n-- {
		name := string(r.Text())
		if seen[name] {
			return nil, fmt.Errorf("the key %q occurs twice", utf.Cut(name, 64))
		}
		seen[name] = true
		all = append(all, member{name, r.Skip()})
	}
	return all, r.Err()
}

// join implements coding.
func (msgpackCoding) join(elements ...[]byte) []byte {
	b := rawmsgpack.AppendArrayLen(nil, len(elements))
	for _, e := range elements {
		b = append(b, e...)
	}
	return b
}

// joinMembers implements coding.
func (msgpackCoding) joinMembers(members []member) ([]byte, error) {
	b := rawmsgpack.AppendMapLen(nil, len(members))
	for _, m := range members {
		b = append(rawmsgpack.AppendText(b, m.name), m.value...)
	}
	return b, nil
}

// decode implements coding.
func (msgpackCoding) decode(data []byte, v any) error {
	return msgpack.Serializer{}.Unmarshal(data, v)
}

// encode implements coding. The keys of generic maps are sorted, so that the same value has the
// same encoding.
func (msgpackCoding) encode(v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the library or a method of the value
			data, err = nil, fmt.Errorf("msgpack of a %T: %v", v, p)
		}
	}()
	var b bytes.Buffer
	e := lib.NewEncoder(&b)
	e.UseCompactInts(true)
	e.SetSortMapKeys(true)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), msgpack.Scan(b.Bytes())
}

// value implements coding.
func (c msgpackCoding) value(data []byte) (any, error) {
	var v any
	err := c.decode(data, &v)
	return v, err
}
