// Package msgpack has the default serializer, MessagePack, and the default format, [Compact].
package msgpack

import (
	"bytes"
	"fmt"

	lib "github.com/vmihailenco/msgpack/v5"

	"github.com/swarmiji/swarmiji/internal/pack"
	"github.com/swarmiji/swarmiji/serializer"
)

// Serializer writes values as MessagePack: structs as maps with the names of their fields (tag `msgpack:"name"`), whole
// numbers in their shortest form. It reads structs from maps and also from arrays with as many elements as there are
// fields. The zero value is ready.
//
// What [Scan] refuses is refused before anything is decoded. Decoding into variables of type any, or containers of them,
// then needs at most 32 times the size of the input, and 16 MiB besides; a variable of a declared type needs what its type
// needs: a []T takes the size of a T for each byte at worst, and some times that while a list of more than a million grows.
//
// The library does not say when a whole number does not fit a smaller type: 300 read into an int8 is 44. Read into int or
// int64 what may be large.
type Serializer struct{}

// ContentType returns [serializer.ContentMsgpack].
func (Serializer) ContentType() string { return serializer.ContentMsgpack }

// buffer is the least the library wants of a writer.
type buffer struct{ b []byte }

func (w *buffer) Write(p []byte) (int, error) { w.b = append(w.b, p...); return len(p), nil }
func (w *buffer) WriteByte(c byte) error      { w.b = append(w.b, c); return nil }

// Marshal implements [serializer.Serializer]. What it returns passes [Scan], or it returns [serializer.ErrValue].
func (Serializer) Marshal(v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the library, or a method of the value, panicked: the value's fault
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
	if _, err := pack.Check(w.b); err != nil {
		return nil, fmt.Errorf("%w: msgpack of a %T would not be read back: %w", serializer.ErrValue, v, err)
	}
	return w.b, nil
}

// Unmarshal implements [serializer.Serializer].
func (Serializer) Unmarshal(data []byte, v any) (err error) {
	sum, err := pack.Check(data)
	if err != nil {
		return fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	if sum.Posing > 0 {
		data = pack.WidenTimes(data, sum)
	}
	defer func() {
		// A map[any]any with a key that cannot be compared makes the library panic, and methods of v may.
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

// Scan returns nil when data is one msgpack value that may be decoded, else an error that wraps
// [serializer.ErrMalformed]. It runs in one pass without recursion and allocates nothing. It refuses what is cut short or
// followed by more, nesting deeper than 64, lengths that the rest of the input cannot hold, extension types other than
// timestamps, and inputs made of so many small values that decoding them into any would take more than 32 times their size and
// 16 MiB besides.
func Scan(data []byte) error {
	if _, err := pack.Check(data); err != nil {
		return fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	return nil
}
