// Package msgpack has the default serializer, MessagePack, and the default format, [Compact].
package msgpack

import (
	"bytes"
	"fmt"

	lib "github.com/vmihailenco/msgpack/v5"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/serializer"
)

// Serializer is a [serializer.Serializer] that writes MessagePack. Structs are maps with the names
// of their fields (tag `msgpack:"name"`), and integers have their shortest form. It reads structs
// from maps, and from arrays with one element for each field. The zero value is ready to use.
//
// Input that [Scan] refuses is refused before decoding. Decoding into any, or containers of any,
// needs at most 32 times the size of the input, plus 16 MiB. A variable of another type needs what
// its type needs. At worst, a []T needs the size of a T for each byte of input. While a list of
// more than a million elements grows, it needs several times that.
//
// The library does not report an integer that does not fit a smaller type: 300 read into an int8 is
//  44. Use int or int64 for large values.
type Serializer struct{}

// ContentType returns [serializer.ContentMsgpack].
func (Serializer) ContentType() string { return serializer.ContentMsgpack }

// buffer is the smallest writer that the library accepts.
type buffer struct{ b []byte }

func (w *buffer) Write(p []byte) (int, error) { w.b = append(w.b, p...); return len(p), nil }
func (w *buffer) WriteByte(c byte) error      { w.b = append(w.b, c); return nil }

// Marshal implements [serializer.Serializer]. Returns [serializer.ErrValue] if the result would not
// pass [Scan].
func (Serializer) Marshal(v any) (data []byte, err error) {
	defer func() {
		// the library or a method of the value panicked because of the value
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("%w: msgpack of a %T: %v", serializer.ErrValue, v, p)
		}
	}()
	w := &buffer{make([]byte, 0, 64)}
	enc := lib.GetEncoder()
	enc.Reset(w)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: msgpack of a %T: %w", serializer.ErrValue, v, err)
	}
	lib.PutEncoder(enc)
	if _, err := rawmsgpack.Check(w.b); err != nil {
		return nil, fmt.Errorf("%w: msgpack of a %T could not be decoded again: %w", serializer.ErrValue, v, err)
	}
	return w.b, nil
}

// Unmarshal implements [serializer.Serializer].
func (Serializer) Unmarshal(data []byte, v any) (err error) {
	sum, err := rawmsgpack.Check(data)
	if err != nil {
		return fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	if sum.Posing > 0 {
		data = rawmsgpack.WidenTimes(data, sum)
	}
	defer func() {
		// The library panics for a key of a map[any]any that is not comparable. Methods of v may panic
		// too.
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: msgpack into a %T: %v", serializer.ErrValue, v, p)
		}
	}()
	r := bytes.NewReader(data)
	dec := lib.GetDecoder()
	dec.Reset(r)
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: msgpack into a %T: %w", serializer.ErrValue, v, err)
	}
	lib.PutDecoder(dec)
	if r.Len() > 0 {
		return fmt.Errorf("%w: msgpack into a %T left %d bytes", serializer.ErrMalformed, v, r.Len())
	}
	return nil
}

// Scan returns nil if data is one msgpack value that is safe to decode. Otherwise the error wraps
// [serializer.ErrMalformed]. It needs one pass without recursion and allocates nothing. It refuses
//
//   - truncated data and trailing data,
//   - nesting deeper than 64,
//   - lengths that exceed the rest of the input,
//   - extension types other than timestamps, and
//   - so many small values that decoding into any would need too much memory; see [Serializer].
func Scan(data []byte) error {
	if _, err := rawmsgpack.Check(data); err != nil {
		return fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	return nil
}
