// Package msgpack has the default serializer, MessagePack, and the default format, [Compact].
package msgpack

import (
	"bytes"
	"fmt"
	"sync"

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
// The library does not report an integer that does not fit a smaller type: an int8 becomes 44 if
// 300 is read into it. Use int or int64 for large values.
type Serializer struct{}

// ContentType returns [serializer.ContentMsgpack].
func (Serializer) ContentType() string { return serializer.ContentMsgpack }

// encoder is an encoder of the library and the buffer that it writes to.
type encoder struct {
	buf bytes.Buffer
	lib *lib.Encoder
}

// decoder is a decoder of the library and the reader that it reads from.
type decoder struct {
	data bytes.Reader
	lib  *lib.Decoder
}

// One that was used without an error is used again.
var (
	encoders = sync.Pool{New: func() any { return &encoder{lib: lib.NewEncoder(nil)} }}
	decoders = sync.Pool{New: func() any { return &decoder{lib: lib.NewDecoder(nil)} }}
)

// maxKept is the largest buffer, in bytes, that stays with its encoder.
const maxKept = 16 << 10

// Marshal implements [serializer.Serializer]: it returns v in msgpack. Returns
// [serializer.ErrValue] if v cannot be encoded, a method of v panics, or the result would not pass
// [Scan].
func (Serializer) Marshal(v any) (data []byte, err error) {
	defer func() {
		// the library or a method of the value panicked because of the value
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("%w: msgpack of a %T: %v", serializer.ErrValue, v, p)
		}
	}()
	enc := encoders.Get().(*encoder)
	enc.lib.Reset(&enc.buf)
	enc.lib.UseCompactInts(true)
	if err := enc.lib.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: msgpack of a %T: %w", serializer.ErrValue, v, err)
	}
	data = enc.buf.Bytes()
	if enc.buf.Cap() <= maxKept {
		data = bytes.Clone(data)
		enc.buf.Reset()
		encoders.Put(enc)
	}
	if _, err := rawmsgpack.Check(data); err != nil {
		return nil, fmt.Errorf("%w: msgpack of a %T could not be decoded again: %w", serializer.ErrValue, v, err)
	}
	return data, nil
}

// Unmarshal implements [serializer.Serializer]: it decodes data into v. Returns
// [serializer.ErrMalformed] if data does not pass [Scan] or has bytes after its value. Returns
// [serializer.ErrValue] if it does not fit v or a method of v panics.
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
	dec := decoders.Get().(*decoder)
	dec.data.Reset(data)
	dec.lib.Reset(&dec.data)
	if err := dec.lib.Decode(v); err != nil {
		return fmt.Errorf("%w: msgpack into a %T: %w", serializer.ErrValue, v, err)
	}
	left := dec.data.Len()
	dec.data.Reset(nil)
	decoders.Put(dec)
	if left > 0 {
		return fmt.Errorf("%w: msgpack into a %T left %d bytes", serializer.ErrMalformed, v, left)
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
