package bedrock

import (
	"errors"
	"fmt"
	"io"
)

// phase is what a reader waits for; each has a time of its own.
type phase int

const (
	phaseNone phase = iota
	phaseIdle       // the first byte of a request
	phaseHead       // the rest of its header block
	phaseBody
)

// limits bound what one request may take.
type limits struct {
	head, body int
}

const (
	baseBuffer  = 1 << 10 // what a connection that is idle holds
	freeBuffer  = 4 << 10 // up to this size a buffer need not be asked for
	maxLine     = 4 << 10 // of a method line
	maxHeaders  = 1 << 10 // of a request
	keptHeaders = 32      // there is room for without asking for memory
	headerBytes = 80      // of a span and a header
)

// refusal is why a connection ends after an answer, which it is: what comes next on it could not be told from what was refused.
type refusal string

func (r refusal) Error() string { return "bedrock: " + string(r) }

// The refusals of what is read.
const (
	errHeadSize   refusal = "413 Request header too large"
	errBodySize   refusal = "413 Request body too large"
	errLength     refusal = "400 Malformed Content-Length"
	errChunk      refusal = "400 Malformed chunk"
	errIncomplete refusal = "400 Incomplete request"
	errMemory     refusal = "503 Server out of memory for requests"
	errSlow       refusal = "408 Request timeout"
	errBrowser    refusal = statusUnknown
)

// reader takes requests out of a stream. It keeps one buffer, which is small between requests, and grows with what has arrived only:
// what a request promises to bring costs nothing.
type reader struct {
	src   io.Reader
	limit limits
	// enter is called before a wait for the first byte of a phase. nil: nobody wants to know.
	enter func(phase)
	// room is asked for bytes beyond freeBuffer, and given back negative ones. nil: there is always room.
	room func(delta int) bool

	buf   []byte
	from  int // of what was not read yet
	to    int
	phase phase

	base  []byte // the small buffer, used again
	ahead []byte // what was read by somebody else and comes first
	spans []span
}

// span is a header in the buffer, counted from the beginning of the request, so that the buffer may move.
type span struct{ name, nameEnd, value, valueEnd int }

// head is how far the header block of a request has been read. Each byte is looked at once, however slowly they arrive.
type head struct {
	pos     int // where the line begins that is being read
	scan    int // up to here there is no end of it
	line    [2]int
	begun   bool // there is a method line
	pair    bool // the last line ended with two bytes
	open    bool // the last header goes on in a line that begins with a blank
	blank   int  // where the blank line begins
	bodyAt  int
	bodyLen int
	chunked bool
}

func newReader(src io.Reader, limit limits) *reader {
	return &reader{src: src, limit: limit}
}

// next reads one request into req. io.EOF: the input ended between requests. A refusal is answered before the connection is
// closed; all other errors are the stream's.
func (rd *reader) next(req *request) error {
	rd.phase = phaseNone
	rd.spans = rd.spans[:0]
	var h head
	if err := rd.readHead(&h); err != nil {
		return err
	}
	rd.unescape()
	rd.refer(req, &h)
	if err := rd.measure(req, &h); err != nil {
		return err
	}
	if h.chunked || h.bodyLen > 0 {
		if err := rd.readBody(&h); err != nil {
			return err
		}
	}
	rd.refer(req, &h) // the buffer may be another one
	return nil
}

// done takes a request out of the buffer.
func (rd *reader) done(req *request) {
	rd.from += req.length
	if rd.from >= rd.to {
		rd.from, rd.to = 0, 0
		rd.resize(baseBuffer)
	} else if size := bufferFor(rd.to - rd.from); 4*size <= len(rd.buf) {
		rd.resize(size)
	}
	if len(rd.spans) > keptHeaders {
		req.headers = nil
	}
	rd.dropSpans()
}

// bufferFor is the size of a buffer in which so many bytes, and as many again, have room.
func bufferFor(n int) int {
	size := baseBuffer
	for size < 2*n {
		size *= 2
	}
	return size
}

// addSpan notes a header. Beyond keptHeaders it asks for memory.
func (rd *reader) addSpan(s span) error {
	if n := len(rd.spans); n == cap(rd.spans) {
		more := max(n, keptHeaders/2)
		if n >= keptHeaders && !rd.ask(more*headerBytes) {
			return errMemory
		}
		rd.spans = append(make([]span, 0, n+more), rd.spans...)
	}
	rd.spans = append(rd.spans, s)
	return nil
}

// dropSpans forgets the headers.
func (rd *reader) dropSpans() {
	if cap(rd.spans) > keptHeaders {
		rd.ask((keptHeaders - cap(rd.spans)) * headerBytes)
		rd.spans = nil
	}
}

// ask reserves memory, or gives it back if delta is negative. It returns false if there is none.
func (rd *reader) ask(delta int) bool { return rd.room == nil || rd.room(delta) }

// readHead reads up to the blank line.
func (rd *reader) readHead(h *head) error {
	for {
		b := rd.buf[rd.from:rd.to]
		i := h.scan
		for i < len(b) && !isEnd(b[i]) {
			i++
		}
		h.scan = i
		switch {
		case !h.begun && i > maxLine || i > rd.limit.head:
			return errHeadSize
		case i == len(b) || i > h.pos && i+1 == len(b): // an end of two bytes may be half there
			if err := rd.fill(h); err != nil {
				return err
			}
		case i == h.pos && !h.begun: // blank lines before a request
			rd.from += i + 1
			*h = head{}
		case i == h.pos:
			h.blank = i
			return nil
		default:
			end := i + 1
			if h.pair = isEnd(b[end]) && b[end] != b[i]; h.pair {
				end++
			}
			if err := rd.headLine(h, b, i); err != nil {
				return err
			}
			h.pos, h.scan = end, end
		}
	}
}

// headLine reads the line of b that begins at h.pos and ends at end.
func (rd *reader) headLine(h *head, b []byte, end int) error {
	line := b[h.pos:end]
	if !h.begun {
		if t := trim(line); len(t) > 0 {
			at := h.pos
			for isBlank(b[at]) {
				at++
			}
			if fromBrowser(t) {
				return errBrowser
			}
			h.begun, h.line = true, [2]int{at, at + len(t)}
		}
		return nil
	}
	if isBlank(line[0]) {
		if h.open {
			last := &rd.spans[len(rd.spans)-1]
			last.valueEnd += copy(b[last.valueEnd:], trimRight(line))
		}
		return nil
	}
	h.open = false
	colon := 0
	for colon < len(line) && line[colon] != ':' {
		colon++
	}
	name := trimRight(line[:colon])
	if colon == len(line) || len(name) == 0 {
		return nil // it says nothing
	}
	if len(rd.spans) == maxHeaders {
		return errHeadSize
	}
	value := colon + 1
	for value < len(line) && isBlank(line[value]) {
		value++
	}
	at := h.pos
	h.open = true
	return rd.addSpan(span{at, at + len(name), at + value, at + value + len(trimRight(line[value:]))})
}

// unescape brings the values into the form that was meant.
func (rd *reader) unescape() {
	b := rd.buf[rd.from:rd.to]
	for i := range rd.spans {
		s := &rd.spans[i]
		s.valueEnd = s.value + len(unescape(b[s.value:s.valueEnd]))
	}
}

// refer makes req refer to the buffer as it is now.
func (rd *reader) refer(req *request, h *head) {
	b := rd.buf[rd.from:rd.to]
	req.line = b[h.line[0]:h.line[1]]
	req.headers = req.headers[:0]
	for _, s := range rd.spans {
		req.headers = append(req.headers, header{b[s.name:s.nameEnd], b[s.value:s.valueEnd]})
	}
	req.body, req.length = nil, h.bodyAt+h.bodyLen
	if h.bodyLen > 0 {
		req.body = b[h.bodyAt:req.length]
	}
}

// measure finds out how long a request is, and reads the rest of its blank line where a body follows.
func (rd *reader) measure(req *request, h *head) error {
	h.bodyAt = h.blank + 1
	h.chunked = req.is("Transfer-Encoding", "chunked")
	if length := req.get("Content-Length"); length != nil && !h.chunked {
		n, ok := whole(length)
		switch {
		case !ok:
			return errLength
		case n > int64(rd.limit.body):
			return errBodySize
		}
		h.bodyLen = int(n)
	}
	if h.pair {
		if rd.from+h.bodyAt == rd.to && (h.chunked || h.bodyLen > 0) {
			if err := rd.fill(h); err != nil {
				return err
			}
		}
		if b := rd.buf[rd.from:rd.to]; h.bodyAt < len(b) && isEnd(b[h.bodyAt]) && b[h.bodyAt] != b[h.blank] {
			h.bodyAt++
		}
	}
	return nil
}

// readBody reads what Content-Length says, or chunks.
func (rd *reader) readBody(h *head) error {
	if h.chunked {
		return rd.readChunks(h)
	}
	for rd.to-rd.from < h.bodyAt+h.bodyLen {
		if err := rd.fill(h); err != nil {
			return err
		}
	}
	return nil
}

// fill reads some bytes more, of the request that has been read as far as h says.
func (rd *reader) fill(h *head) error {
	p := phaseHead
	switch {
	case h.bodyAt > 0:
		p = phaseBody
	case rd.from == rd.to && !h.begun:
		p = phaseIdle
	}
	if p != rd.phase {
		rd.phase = p
		if rd.enter != nil {
			rd.enter(p)
		}
	}
	if err := rd.makeRoom(); err != nil {
		return err
	}
	n, err := rd.read(rd.buf[rd.to:])
	rd.to += n
	switch {
	case n > 0:
		return nil
	case errors.Is(err, io.EOF) && p == phaseIdle:
		return io.EOF
	case errors.Is(err, io.EOF):
		return errIncomplete
	}
	return fmt.Errorf("bedrock: reading: %w", err)
}

// read takes what was read ahead, or reads.
func (rd *reader) read(p []byte) (n int, err error) {
	if len(rd.ahead) > 0 {
		n = copy(p, rd.ahead)
		rd.ahead = rd.ahead[n:]
		return n, nil
	}
	for range 100 {
		if n, err = rd.src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// makeRoom has the buffer end behind rd.to.
func (rd *reader) makeRoom() error {
	switch {
	case rd.buf == nil:
		if rd.base == nil {
			rd.base = make([]byte, baseBuffer)
		}
		rd.buf = rd.base
		return nil
	case rd.to < len(rd.buf):
		return nil
	case rd.from > 0:
		rd.to = copy(rd.buf, rd.buf[rd.from:rd.to])
		rd.from = 0
		return nil
	}
	size := 2 * len(rd.buf)
	if size > freeBuffer && !rd.ask(size-max(len(rd.buf), freeBuffer)) {
		return errMemory
	}
	rd.move(size)
	return nil
}

// close gives up what is held.
func (rd *reader) close() {
	rd.from, rd.to = 0, 0
	rd.resize(baseBuffer)
	rd.dropSpans()
}

// resize takes a smaller buffer, and gives back the memory of the larger one.
func (rd *reader) resize(size int) {
	if len(rd.buf) > freeBuffer {
		rd.ask(max(size, freeBuffer) - len(rd.buf))
	}
	rd.move(size)
}

// move copies what was not read to a buffer of another size.
func (rd *reader) move(size int) {
	to := rd.base
	if size > baseBuffer {
		to = make([]byte, size)
	}
	rd.to = copy(to, rd.buf[rd.from:rd.to])
	rd.from, rd.buf = 0, to
}
