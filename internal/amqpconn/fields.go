package amqpconn

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Parts of the AMQP protocol.
const (
	frameHeader = 2       // type of the frame with the properties of a message
	frameStart  = 7       // bytes before the payload of a frame; one byte follows it
	frameLimit  = 1 << 20 // payload of a frame; servers never send more
	hasContent  = 1 << 15 // flags of the properties of a message, in their order
	hasEncoding = 1 << 14
	hasHeaders  = 1 << 13
	readAhead   = 16 << 10 // bytes
)

// Limits of the client library for header tables, with a margin.
const (
	maxFieldDepth = 30
	maxFields     = 8000 // of one table or list
)

// unreadableHeaders replaces the headers of a message that cannot be read: one field with this name
// and the text "true".
const unreadableHeaders = "\x12unreadable-headers" + "S\x00\x00\x00\x04true"

// fieldReader reads frames of AMQP and makes the headers of messages readable for the client
// library. The library ends the connection at a header that it cannot read. The server then
// delivers the message again, so that no consumer of its queue gets further.
//
//   - 64-bit integers of the type L, which Python's client sends, become those of the type l.
//   - Headers with an unknown type, or beyond the limits of the library, are replaced as a whole.
//
// Not safe for concurrent use.
type fieldReader struct {
	in    *bufio.Reader
	left  int    // bytes of the current frame that are passed on without a change
	plain bool   // the server does not send frames of AMQP: everything is passed on
	frame []byte // reused
	ready []byte // the part of frame that is not yet read
}

// newFieldReader returns a fieldReader that reads from r.
func newFieldReader(r io.Reader) *fieldReader {
	return &fieldReader{in: bufio.NewReaderSize(r, readAhead)}
}

// Read implements [io.Reader]. It returns the errors of the source.
func (f *fieldReader) Read(p []byte) (int, error) {
	if len(f.ready) == 0 && f.left == 0 && !f.plain {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	if len(f.ready) > 0 {
		n := copy(p, f.ready)
		f.ready = f.ready[n:]
		return n, nil
	}
	if !f.plain && len(p) > f.left {
		p = p[:f.left]
	}
	n, err := f.in.Read(p)
	if !f.plain {
		f.left -= n
	}
	return n, err
}

// next begins the next frame. It reads a frame with properties as a whole.
func (f *fieldReader) next() error {
	start, err := f.in.Peek(frameStart)
	if err != nil {
		if len(start) == 0 {
			return err
		}
		f.plain = true // the rest of an ending connection
		return nil
	}
	size := binary.BigEndian.Uint32(start[3:])
	if start[0] == 0 || start[0] > 8 || size > frameLimit {
		f.plain = true
		return nil
	}
	whole := frameStart + int(size) + 1
	if start[0] != frameHeader {
		f.left = whole
		return nil
	}
	if cap(f.frame) < whole {
		f.frame = make([]byte, whole+len(unreadableHeaders))
	}
	n, err := io.ReadFull(f.in, f.frame[:whole])
	f.ready = f.frame[:n]
	if err != nil { // the library sees an unfinished frame, and the next Read the error
		return nil
	}
	f.ready = readable(f.ready)
	return nil
}

// readable returns a frame with properties whose headers the library can read. It changes frame.
func readable(frame []byte) []byte {
	at, ok := headersAt(frame)
	if !ok {
		return frame
	}
	begin := at + 4
	end := begin + int(binary.BigEndian.Uint32(frame[at:]))
	if end > len(frame)-1 {
		return frame // not a frame that a server sends; the library refuses it
	}
	if fix(frame[begin:end], 0, true) {
		return frame
	}
	rest := append([]byte(nil), frame[end:]...)
	frame = append(append(frame[:begin], unreadableHeaders...), rest...)
	binary.BigEndian.PutUint32(frame[at:], uint32(len(unreadableHeaders)))
	binary.BigEndian.PutUint32(frame[3:], uint32(len(frame)-frameStart-1))
	return frame
}

// headersAt returns the index of the headers, which begin with their length, in a frame with
// properties. ok is false without headers.
func headersAt(frame []byte) (at int, ok bool) {
	at = frameStart + 14 // class, weight, size of the body, flags
	if len(frame) < at+5 {
		return 0, false
	}
	flags := binary.BigEndian.Uint16(frame[at-2:])
	for _, one := range []uint16{hasContent, hasEncoding} {
		if flags&one == 0 {
			continue
		}
		if at += 1 + int(frame[at]); len(frame) < at+5 {
			return 0, false
		}
	}
	return at, flags&hasHeaders != 0
}

// fix changes the types of the fields in b, a table or a list without its length. It returns false
// if the library cannot read b.
func fix(b []byte, depth int, table bool) bool {
	for n := 0; len(b) > 0; n++ {
		if table {
			name := 1 + int(b[0])
			if name >= len(b) {
				return false
			}
			b = b[name:]
		}
		size, ok := fixField(b, depth)
		if !ok || n == maxFields {
			return false
		}
		b = b[size:]
	}
	return true
}

// fixField changes the type of the first field in b, and those inside of it, and returns its size
// with its type. ok is false if the library cannot read it. b must not be empty.
func fixField(b []byte, depth int) (size int, ok bool) {
	switch b[0] {
	case 'V':
		size = 1
	case 't', 'b', 'B':
		size = 2
	case 's', 'u':
		size = 3
	case 'I', 'i', 'f':
		size = 5
	case 'D':
		size = 6
	case 'L':
		b[0] = 'l'
		size = 9
	case 'l', 'd', 'T':
		size = 9
	case 'S', 'x', 'A', 'F':
		if len(b) < 5 || binary.BigEndian.Uint32(b[1:]) > frameLimit {
			return 0, false
		}
		size = 5 + int(binary.BigEndian.Uint32(b[1:]))
	default:
		return 0, false
	}
	if size > len(b) {
		return 0, false
	}
	if b[0] == 'A' || b[0] == 'F' {
		return size, depth < maxFieldDepth && fix(b[5:size], depth+1, b[0] == 'F')
	}
	return size, true
}
