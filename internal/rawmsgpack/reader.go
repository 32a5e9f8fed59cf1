package rawmsgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Reader reads values one after another. After the first error all reads return zero values. It
// never reads beyond its data and never allocates. Its results share the data. It is not safe for
// concurrent use.
type Reader struct {
	data []byte
	pos  int
	err  error
}

// NewReader returns a Reader of data.
func NewReader(data []byte) Reader { return Reader{data: data} }

// Err returns the first error, which wraps [ErrMalformed], or nil.
func (r *Reader) Err() error { return r.err }

// Fail sets the error if none is set yet. The stored error wraps [ErrMalformed].
func (r *Reader) Fail(err error) {
	if r.err == nil {
		if !errors.Is(err, ErrMalformed) {
			err = fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		r.err = err
	}
}

// fail sets the error, unless one is set, to one that names the expected value and the position.
func (r *Reader) fail(want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: want %s at byte %d", ErrMalformed, want, r.pos)
	}
}

// Pos returns the number of bytes read.
func (r *Reader) Pos() int { return r.pos }

// Done sets an error unless all data was read.
func (r *Reader) Done() {
	if r.err == nil && r.pos != len(r.data) {
		r.err = fmt.Errorf("%w: %d bytes follow the value", ErrMalformed, len(r.data)-r.pos)
	}
}

// take returns the next n bytes and moves past them. If fewer bytes remain, it sets an error and
// returns nil. It also returns nil after an error.
func (r *Reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.data)-r.pos {
		r.fail("more data")
		return nil
	}
	b := r.data[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return b
}

// Peek returns the first byte of the next value without reading it. At the end of the data, and
// after an error, it returns 0xc1, which msgpack never uses.
func (r *Reader) Peek() byte {
	if r.err != nil || r.pos >= len(r.data) {
		return 0xc1
	}
	return r.data[r.pos]
}

// big reads a big-endian unsigned number of 1, 2, 4 or 8 bytes. It returns 0 if it could not read n
// bytes.
func (r *Reader) big(n int) uint64 {
	b := r.take(n)
	if len(b) != n {
		return 0
	}
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	default:
		return binary.BigEndian.Uint64(b)
	}
}

// Nil reports whether the next value is nil, and reads it in that case.
func (r *Reader) Nil() bool {
	if r.Peek() != 0xc0 {
		return false
	}
	r.pos++
	return true
}

// Bool reads a boolean. If the next value is not a boolean, it sets an error and returns false.
func (r *Reader) Bool() bool {
	c := r.Peek()
	if c != 0xc2 && c != 0xc3 {
		r.fail("a boolean")
		return false
	}
	r.pos++
	return c == 0xc3
}

// Int reads an integer. It returns math.MaxInt64 for a larger value. If the next value is not an
// integer, it sets an error and returns 0.
func (r *Reader) Int() int64 {
	c := r.Peek()
	if c <= 0x7f || c >= 0xe0 {
		r.pos++
		return int64(int8(c))
	}
	if c < 0xcc || c > 0xd3 {
		r.fail("an integer")
		return 0
	}
	r.pos++
	switch v := r.big(1 << ((c - 0xcc) & 3)); c {
	case 0xd0:
		return int64(int8(v))
	case 0xd1:
		return int64(int16(v))
	case 0xd2:
		return int64(int32(v))
	case 0xd3:
		return int64(v)
	default:
		return int64(min(v, math.MaxInt64))
	}
}

// IsText reports whether the next value is a str.
func (r *Reader) IsText() bool {
	c := r.Peek()
	return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb
}

// IsBytes reports whether the next value is a bin.
func (r *Reader) IsBytes() bool {
	c := r.Peek()
	return c >= 0xc4 && c <= 0xc6
}

// Text reads a str. The result shares the data. If the next value is not a str, is cut short or is
// not valid UTF-8, Text sets an error and returns nil.
func (r *Reader) Text() []byte {
	c := r.Peek()
	var n int
	switch {
	case c&0xe0 == 0xa0:
		r.pos++
		n = int(c & 0x1f)
	case c >= 0xd9 && c <= 0xdb:
		r.pos++
		n = int(r.big(1 << (c - 0xd9)))
	default:
		r.fail("a text")
		return nil
	}
	b := r.take(n)
	if !utf8.Valid(b) {
		r.fail("valid UTF-8 before")
		return nil
	}
	return b
}

// Bytes reads a bin. The result shares the data. If the next value is not a bin or is cut short, it
// sets an error and returns nil.
func (r *Reader) Bytes() []byte {
	c := r.Peek()
	if c < 0xc4 || c > 0xc6 {
		r.fail("a bin")
		return nil
	}
	r.pos++
	return r.take(int(r.big(1 << (c - 0xc4))))
}

// MapLen reads the header of a map and returns its number of pairs. If the rest of the data is too
// short for that many pairs, it sets an error and returns 0.
func (r *Reader) MapLen() int { return r.length(0x80, 0xde, 2, "a map") }

// ArrayLen reads the header of an array and returns its number of elements. If the rest of the data
// is too short for that many elements, it sets an error and returns 0.
func (r *Reader) ArrayLen() int { return r.length(0x90, 0xdc, 1, "an array") }

// length reads the header of an array or a map and returns its number of elements or pairs, each of
// at least size bytes. small and large are its codes, see appendLen. For another value it sets an
// error that names want, and returns 0.
func (r *Reader) length(small, large byte, size int, want string) int {
	var n int
	switch c := r.Peek(); {
	case c&0xf0 == small:
		r.pos++
		n = int(c & 0x0f)
	case c == large || c == large+1:
		r.pos++
		n = int(r.big(2 << (c - large)))
	default:
		r.fail(want)
		return 0
	}
	if n < 0 || n > (len(r.data)-r.pos)/size {
		r.fail("all elements of " + want)
		return 0
	}
	return n
}

// Keys is the set of keys read so far in a map of this module. The zero value is empty.
type Keys [2]uint64

// MaxKey is the largest key in maps of this module: keys are integers from 0 to MaxKey.
const MaxKey = 127

// Key reads the key of a map of this module, adds it to seen and returns it. If the key is not an
// integer from 0 to [MaxKey] or is already in seen, Key sets an error and returns -1.
func (r *Reader) Key(seen *Keys) int {
	c := r.Peek()
	if r.err != nil || c > MaxKey {
		r.fail("a key from 0 to 127")
		return -1
	}
	r.pos++
	bit := uint64(1) << (c & 63)
	if seen[c>>6]&bit != 0 {
		r.pos--
		r.fail(fmt.Sprintf("a key other than %d, which was there before,", c))
		return -1
	}
	seen[c>>6] |= bit
	return int(c)
}

// Skip checks the next value of any type, moves past it and returns its bytes, which share the
// data. If the value is malformed, it sets an error and returns nil.
func (r *Reader) Skip() []byte {
	if r.err != nil {
		return nil
	}
	w := walker{data: r.data}
	end, err := w.walk(r.pos)
	if err != nil {
		r.err = err
		return nil
	}
	b := r.data[r.pos:end:end]
	r.pos = end
	return b
}
