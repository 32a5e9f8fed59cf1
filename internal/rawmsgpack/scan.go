package rawmsgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is the class of all errors of this package.
var ErrMalformed = errors.New("malformed msgpack")

// MaxDepth limits the nesting of arrays and maps.
const MaxDepth = 64

// The memory that decoding into variables of type any may need: a fixed part, so that ordinary
// messages pass, and a multiple of the input.
const (
	memoryFactor = 32
	memoryFree   = 16 << 20
)

// The memory that Go needs for values of type any (64 bits, Go 1.26): the minimum and the cost per
// element, rounded up.
const (
	costElement  = 16  // a slot of []any
	costArray    = 40  // a slice header behind an interface, also under the race detector
	costMap      = 64  // a map header behind an interface
	costMapSmall = 288 // the first group of 8 slots of map[string]any
	costMapPair  = 80  // a slot in a large map, with its load factor
	costText     = 24  // a string header and the smallest allocation
)

// Summary holds the facts that [Check] found about a well-formed input.
type Summary struct {
	// Posing counts the timestamps whose payload begins with the first byte of a map or of nil. If the
	// variable is a map, the library would read such a payload as a map of any size. See [WidenTimes].
	Posing int
	// Times counts all timestamps.
	Times int
}

// Check checks that data is exactly one well-formed msgpack value, without recursion and without
// allocating. Its errors wrap [ErrMalformed]. It refuses:
//
//   - a value that is cut short, and bytes after the value
//   - nesting deeper than [MaxDepth]
//   - lengths that the rest of the input cannot hold: the missing elements of all open arrays and
//     maps together are compared with the remaining bytes, so a chain of large headers fails at the
//     second one
//   - extension types other than timestamps
//   - inputs whose decoding into any would need more than 32 times their size plus 16 MiB
func Check(data []byte) (Summary, error) {
	w := walker{data: data}
	end, err := w.walk(0)
	if err != nil {
		return w.sum, err
	}
	if end != len(data) {
		return w.sum, fmt.Errorf("%w: %d bytes follow the value", ErrMalformed, len(data)-end)
	}
	if w.cost > memoryFactor*len(data)+memoryFree {
		return w.sum, fmt.Errorf("%w: too many small values: decoding %d bytes would take %d bytes of memory", ErrMalformed, len(data), w.cost)
	}
	return w.sum, nil
}

// walker checks values in data and adds up their memory cost when decoded. Its methods do not
// decode.
type walker struct {
	data []byte
	sum  Summary
	cost int
	time func(header, payload, size int) // called for each timestamp, if not nil
}

// walk checks the value that begins at pos, with all elements, adds its cost to w.cost, and returns
// the position after it. Returns ErrMalformed for a value that Check refuses.
func (w *walker) walk(pos int) (int, error) {
	var (
		data    = w.data
		pending [MaxDepth + 1]int // missing elements at each open level; level 0 holds the value itself
		level   = 0
		owed    = 1 // sum of pending
	)
	pending[0] = 1
	for owed > 0 {
		for pending[level] == 0 {
			level--
		}
		if pos >= len(data) {
			return pos, fmt.Errorf("%w: cut short at byte %d", ErrMalformed, pos)
		}
		at := pos
		c := data[pos]
		pos++
		pending[level]--
		owed--
		var (
			skip     int // bytes of this value after its first one
			children int
			opens    bool
		)
		switch {
		case c <= 0x7f || c >= 0xe0: // small integers
			continue
		case c <= 0x8f:
			children, opens = 2*int(c&0x0f), true
		case c <= 0x9f:
			children, opens = int(c&0x0f), true
		case c <= 0xbf:
			skip = int(c & 0x1f)
			w.cost += costText + skip
		default:
			header, payload, elements, ok := describe(data[pos:], c)
			if !ok {
				return pos, fmt.Errorf("%w: code %#02x at byte %d is never used or declares more than is left", ErrMalformed, c, at)
			}
			pos += header
			skip, children = payload, elements
			opens = elements >= 0
			switch {
			case c >= 0xd9 && c <= 0xdb || c >= 0xc4 && c <= 0xc6:
				w.cost += costText + payload
			case c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8:
				if err := w.extension(at, pos, payload); err != nil {
					return pos, err
				}
			case !opens:
				w.cost += 8
			}
		}
		if skip > len(data)-pos {
			return pos, fmt.Errorf("%w: %d bytes declared at byte %d, %d are left", ErrMalformed, skip, at, len(data)-pos)
		}
		pos += skip
		if !opens {
			continue
		}
		if children > len(data)-pos-owed {
			return pos, fmt.Errorf("%w: %d elements declared at byte %d, %d bytes are left for all", ErrMalformed, children, at, len(data)-pos)
		}
		if level == MaxDepth {
			return pos, fmt.Errorf("%w: nested deeper than %d at byte %d", ErrMalformed, MaxDepth, at)
		}
		level++
		pending[level] = children
		owed += children
		w.charge(c, children)
	}
	return pos, nil
}

// charge adds to w.cost the memory of an array or a map whose first byte is c. children is the
// number of its elements; a pair of a map has two.
func (w *walker) charge(c byte, children int) {
	isMap := c <= 0x8f || c >= 0xde
	switch {
	case !isMap:
		w.cost += costArray + children*costElement
	case children == 0:
		w.cost += costMap
	case children <= 16:
		w.cost += costMap + costMapSmall
	default:
		w.cost += costMap + children/2*costMapPair
	}
}

// extension checks the extension whose header begins at header and whose type is at pos. payload is
// the number of bytes from there, with the type. It counts a timestamp in w.sum, adds its cost, and
// calls w.time. Returns ErrMalformed for any other extension.
func (w *walker) extension(header, pos, payload int) error {
	if payload > len(w.data)-pos {
		return fmt.Errorf("%w: cut short in an extension at byte %d", ErrMalformed, header)
	}
	size := payload - 1
	if typ := int8(w.data[pos]); typ != -1 || size != 4 && size != 8 && size != 12 {
		return fmt.Errorf("%w: extension of type %d and %d bytes at byte %d; only timestamps are read", ErrMalformed, typ, size, header)
	}
	body := w.data[pos+1 : pos+payload]
	nsec := uint64(0)
	switch size {
	case 8:
		nsec = binary.BigEndian.Uint64(body) >> 34
	case 12:
		nsec = uint64(binary.BigEndian.Uint32(body))
	}
	if nsec > 999_999_999 {
		return fmt.Errorf("%w: timestamp with %d nanoseconds at byte %d", ErrMalformed, nsec, header)
	}
	w.cost += 24
	w.sum.Times++
	if c := body[0]; size != 12 && (c&0xf0 == 0x80 || c == 0xc0 || c == 0xde || c == 0xdf) {
		w.sum.Posing++
	}
	if w.time != nil {
		w.time(header, pos+1, size)
	}
	return nil
}

// describe reads the rest of the header of a value whose first byte is c, 0xc0 to 0xdf. It returns
// the number of further header bytes, of payload bytes (including an extension's type), and of
// elements, -1 for a value without elements.
func describe(rest []byte, c byte) (header, payload, elements int, ok bool) {
	elements = -1
	length := func(n int) (int, bool) {
		if len(rest) < n {
			return 0, false
		}
		v := 0
		for _, x := range rest[:n] {
			v = v<<8 | int(x)
		}
		return v, v >= 0 && v <= len(rest) // also keeps twice the number in range where int has 32 bits
	}
	switch c {
	case 0xc0, 0xc2, 0xc3:
		return 0, 0, -1, true
	case 0xc4, 0xc5, 0xc6: // bin
		header = 1 << (c - 0xc4)
		payload, ok = length(header)
	case 0xc7, 0xc8, 0xc9: // ext
		header = 1 << (c - 0xc7)
		payload, ok = length(header)
		payload++
	case 0xca, 0xce, 0xd2:
		return 0, 4, -1, true
	case 0xcb, 0xcf, 0xd3:
		return 0, 8, -1, true
	case 0xcc, 0xd0:
		return 0, 1, -1, true
	case 0xcd, 0xd1:
		return 0, 2, -1, true
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext
		return 0, 1 + 1<<(c-0xd4), -1, true
	case 0xd9, 0xda, 0xdb: // str
		header = 1 << (c - 0xd9)
		payload, ok = length(header)
	case 0xdc, 0xdd: // array
		header = 2 << (c - 0xdc)
		elements, ok = length(header)
	case 0xde, 0xdf: // map
		header = 2 << (c - 0xde)
		elements, ok = length(header)
		elements *= 2
	}
	return header, payload, elements, ok
}

// WidenTimes returns a copy of data in which every timestamp has its longest form of 12 bytes. That
// form begins with the nanoseconds, below one billion, so its first byte is never that of a map.
// data must have passed [Check] with the result sum.
func WidenTimes(data []byte, sum Summary) []byte {
	out := make([]byte, 0, len(data)+sum.Times*9)
	done := 0
	w := walker{data: data}
	w.time = func(header, payload, size int) {
		out = append(out, data[done:header]...)
		done = payload + size
		body := data[payload:done]
		var sec, nsec uint64
		switch size {
		case 4:
			sec = uint64(binary.BigEndian.Uint32(body))
		case 8:
			v := binary.BigEndian.Uint64(body)
			sec, nsec = v&(1<<34-1), v>>34
		default:
			nsec, sec = uint64(binary.BigEndian.Uint32(body)), binary.BigEndian.Uint64(body[4:])
		}
		out = append(out, 0xc7, 12, 0xff)
		out = binary.BigEndian.AppendUint32(out, uint32(nsec))
		out = binary.BigEndian.AppendUint64(out, sec)
	}
	if _, err := w.walk(0); err != nil {
		return data // impossible, because data passed Check
	}
	return append(out, data[done:]...)
}
