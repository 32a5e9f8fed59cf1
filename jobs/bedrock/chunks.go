package bedrock

import "bytes"

// maxTrailer limits the bytes of the lines after the last chunk, and of the line before a chunk.
const maxTrailer = 4 << 10

// chunks is the state of reading a body that comes in chunks, which are joined in the buffer.
// Positions are relative to the start of the request.
type chunks struct {
	rd  *reader
	h   *head
	put int // end of the joined body
	at  int // next byte to read; the bytes in between are unused
}

// readChunks reads a body in chunks, joins them at h.bodyAt, and sets h.bodyLen. It skips the
// trailer, up to a blank line. It blocks for input. Returns errChunk for a malformed body or a
// trailer above maxTrailer bytes, errBodySize for a body that is too large, and the errors of fill.
func (rd *reader) readChunks(h *head) error {
	c := &chunks{rd: rd, h: h, put: h.bodyAt, at: h.bodyAt}
	for {
		size, err := c.size()
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if err := c.data(size); err != nil {
			return err
		}
	}
	for begin := c.at; ; { // the trailer
		line, err := c.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		if c.at-begin > maxTrailer {
			return errChunk
		}
	}
	c.close()
	h.bodyLen = c.put - h.bodyAt
	return nil
}

// size reads the line before a chunk, and returns the size of the chunk; 0 means the end of the
// body. It ignores text after a semicolon. It blocks for input. Returns errChunk for a malformed
// number, errBodySize if the body would become too large, and the errors of line.
func (c *chunks) size() (int, error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	if i := bytes.IndexByte(line, ';'); i >= 0 {
		line = line[:i]
	}
	n, ok := hex(trim(line))
	switch {
	case !ok:
		return 0, errChunk
	case int64(c.put-c.h.bodyAt)+n > int64(c.rd.limit.body):
		return 0, errBodySize
	}
	return int(n), nil
}

// data reads a chunk of this size and the line end behind it, and joins the chunk to the body. It
// blocks for input. Returns errChunk if other text follows the chunk, and the errors of fill and
// line.
func (c *chunks) data(size int) error {
	for len(c.rest()) < size {
		if err := c.fill(); err != nil {
			return err
		}
	}
	b := c.rd.buf[c.rd.from:c.rd.to]
	copy(b[c.put:], b[c.at:c.at+size])
	c.put, c.at = c.put+size, c.at+size
	line, err := c.line()
	if err == nil && len(line) != 0 {
		err = errChunk
	}
	return err
}

// line reads a line that ends with \r\n or \n, and returns it without the end. The result is valid
// until the next read. It blocks for input. Returns errChunk if a line has more than maxTrailer
// bytes, and the errors of fill.
func (c *chunks) line() ([]byte, error) {
	for scan := 0; ; {
		b := c.rest()
		if i := bytes.IndexByte(b[scan:], '\n'); i >= 0 {
			c.at += scan + i + 1
			return bytes.TrimSuffix(b[:scan+i], []byte{'\r'}), nil
		}
		if scan = len(b); scan > maxTrailer {
			return nil, errChunk
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// rest returns the input that was not read yet.
func (c *chunks) rest() []byte { return c.rd.buf[c.rd.from+c.at : c.rd.to] }

// fill reads more input from the client, and blocks for it. It first removes used bytes between the
// body and the input, so that the buffer never exceeds the size of the body by much. Returns the
// errors of reader.fill.
func (c *chunks) fill() error {
	if c.at-c.put > maxTrailer {
		c.close()
	}
	return c.rd.fill(c.h)
}

// close moves the unread input directly behind the joined body, over bytes that were read. It does
// not close the connection.
func (c *chunks) close() {
	b := c.rd.buf[c.rd.from:c.rd.to]
	c.rd.to = c.rd.from + c.put + copy(b[c.put:], b[c.at:])
	c.at = c.put
}
