package bedrock

import "bytes"

// maxTrailer is how many bytes of lines may follow the last chunk, and how long the line before one may be.
const maxTrailer = 4 << 10

// chunks is a body in chunks while it is read. Places are counted from the beginning of the request.
type chunks struct {
	rd  *reader
	h   *head
	put int // up to here the body stands together
	at  int // of what is read next; between the two is what was of no use
}

// readChunks reads a body in chunks, and moves them together behind h.bodyAt. What follows the last of them up to a blank line says
// nothing that anybody here would want to know.
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

// size reads the line before a chunk.
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

// data reads a chunk and the end of the line behind it.
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

// line reads a line with an end of \r\n or \n, as all who send chunks write it. It is valid until the next reading.
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

func (c *chunks) rest() []byte { return c.rd.buf[c.rd.from+c.at : c.rd.to] }

// fill reads more. What was of no use makes room first, so that it never takes more than the body may.
func (c *chunks) fill() error {
	if c.at-c.put > maxTrailer {
		c.close()
	}
	return c.rd.fill(c.h)
}

// close moves what was not read yet behind what was.
func (c *chunks) close() {
	b := c.rd.buf[c.rd.from:c.rd.to]
	c.rd.to = c.rd.from + c.put + copy(b[c.put:], b[c.at:])
	c.at = c.put
}
