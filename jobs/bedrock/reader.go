package bedrock

import (
	"errors"
	"fmt"
	"io"
)

// phase is the part of a request that a reader waits for. Each phase has its own time limit.
type phase int

const (
	phaseNone phase = iota
	phaseIdle       // the first byte of a request
	phaseHead       // the rest of its header block
	phaseBody
)

// limits are the maximum sizes of a request.
type limits struct {
	head, body int
}

const (
	baseBuffer  = 1 << 10 // buffer of an idle connection
	freeBuffer  = 4 << 10 // buffers up to this size need no reservation
	maxLine     = 4 << 10 // of a method line
	maxHeaders  = 1 << 10 // of a request
	keptHeaders = 32      // headers that need no reservation
	headerBytes = 80      // of a span and a header
)

// refusal is the status with which a connection ends because its input is invalid. The start of the
// next request is then unknown.
type refusal string

// Error returns the status with the name of the package.
func (r refusal) Error() string { return "bedrock: " + string(r) }

// The refusals of invalid input.
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

// reader reads requests from a stream. Its single buffer is small between requests and grows only
// with the received input. The size that a request announces costs nothing.
type reader struct {
	src   io.Reader
	limit limits
	// enter is called before waiting for the first byte of a phase. nil: not called.
	enter func(phase)
	// room reserves bytes beyond freeBuffer, and releases them if delta is negative. nil: always
	// successful.
	room func(delta int) bool

	buf   []byte
	from  int // start of the unread input
	to    int
	phase phase

	base  []byte // the small buffer, reused
	ahead []byte // input that the watch has read, which comes first
	spans []span
}

// span is the position of a header in the buffer, relative to the start of the request, since the
// buffer may move.
type span struct{ name, nameEnd, value, valueEnd int }

// head is the progress in reading a header block. Each byte is inspected once, however slowly it
// arrives.
type head struct {
	pos     int // start of the current line
	scan    int // the line has no end before this position
	line    [2]int
	begun   bool // the method line was read
	pair    bool // the last line ended with two bytes
	open    bool // the next line may continue the last header
	blank   int  // start of the blank line
	bodyAt  int
	bodyLen int
	chunked bool
}

// newReader returns a reader of requests from src.
func newReader(src io.Reader, limit limits) *reader {
	return &reader{src: src, limit: limit}
}

// next blocks until one request was read, and stores it in req, which is valid until done. Values
// are unescaped, and chunks of the body are joined. Returns io.EOF if the input ended between
// requests, and a refusal if the input is invalid. All other errors come from the stream.
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
	rd.refer(req, &h) // the buffer may have moved
	return nil
}

// done removes a request that next has returned from the buffer, shrinks the buffer and releases
// memory. req must not be used afterwards.
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

// bufferFor returns the size of a buffer for n bytes: the smallest product of baseBuffer and a
// power of two that is at least 2*n.
func bufferFor(n int) int {
	size := baseBuffer
	for size < 2*n {
		size *= 2
	}
	return size
}

// addSpan adds the position of a header. Beyond keptHeaders it reserves memory. Returns errMemory,
// and adds nothing, if that is not available.
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

// dropSpans drops the positions of headers and releases their memory, if the list has room for more
// than keptHeaders. A smaller list stays, and the next call of next empties it.
func (rd *reader) dropSpans() {
	if cap(rd.spans) > keptHeaders {
		rd.ask((keptHeaders - cap(rd.spans)) * headerBytes)
		rd.spans = nil
	}
}

// ask reserves memory, or releases it if delta is negative. Returns false if it is not available.
func (rd *reader) ask(delta int) bool { return rd.room == nil || rd.room(delta) }

// readHead reads the method line and the headers up to the blank line, and records their positions
// in h and rd.spans. It skips blank lines before the request and blocks for input. Returns
// errHeadSize for a block or a method line that is too long, and the errors of headLine and fill.
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
		case i == len(b) || i > h.pos && i+1 == len(b): // the second byte of a line end may be missing
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

// headLine records the line of b from h.pos to end:
//
//   - The first line that is not blank is the method line. Returns errBrowser if it is one of
//     HTTP.
//   - A line that begins with a blank continues the value of the previous header, if there is one.
//   - A line without a colon or a name is ignored.
//   - Any other line is a header.
//
// Returns errHeadSize for more than maxHeaders headers, and errMemory without memory for its
// position.
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
		return nil // ignored
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

// unescape replaces the escapes of all header values in place, in the buffer.
func (rd *reader) unescape() {
	b := rd.buf[rd.from:rd.to]
	for i := range rd.spans {
		s := &rd.spans[i]
		s.valueEnd = s.value + len(unescape(b[s.value:s.valueEnd]))
	}
}

// refer sets line, headers, body and length of req to slices of the present buffer, which may have
// moved. The body is empty until h.bodyLen is known.
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

// measure sets h.bodyAt, h.chunked and h.bodyLen from the headers; without a length the body is
// empty. Transfer-Encoding: chunked takes precedence over Content-Length. It blocks for the second
// byte of the blank line if a body follows. Returns errLength for an invalid Content-Length,
// errBodySize for one that is too large, and the errors of fill.
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

// readBody reads the whole body into the buffer, by Content-Length or in chunks, and blocks for
// input. Returns the errors of fill and readChunks.
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

// fill blocks until it has read more bytes of the request; h is the progress so far. It calls
// rd.enter when a phase begins, and may move the buffer. Returns io.EOF only between requests,
// errIncomplete within one, and errMemory if the buffer cannot grow. Other errors wrap that of the
// stream.
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
	return fmt.Errorf("bedrock: cannot read from the client: %w", err)
}

// read copies input that the watch has read ahead to p, or else reads from the stream. Returns
// io.ErrNoProgress if the stream returns 100 times neither data nor an error.
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

// makeRoom makes space in the buffer behind rd.to: it moves the input to the start, or doubles the
// buffer. Returns errMemory, and changes nothing, if a larger buffer is not available.
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

// close drops the input and releases all reserved memory. It does not close the stream.
func (rd *reader) close() {
	rd.from, rd.to = 0, 0
	rd.resize(baseBuffer)
	rd.dropSpans()
}

// resize moves the unread input to a smaller buffer and releases the memory of the larger one. size
// must be large enough for the input.
func (rd *reader) resize(size int) {
	if len(rd.buf) > freeBuffer {
		rd.ask(max(size, freeBuffer) - len(rd.buf))
	}
	rd.move(size)
}

// move copies the unread input to the start of a buffer of another size, which becomes rd.buf. It
// reserves no memory.
func (rd *reader) move(size int) {
	to := rd.base
	if size > baseBuffer {
		to = make([]byte, size)
	}
	rd.to = copy(to, rd.buf[rd.from:rd.to])
	rd.from, rd.buf = 0, to
}
