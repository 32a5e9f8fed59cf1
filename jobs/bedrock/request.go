package bedrock

import (
	"bytes"
	"strconv"
)

// request is one request. It refers to the buffer of its reader and is valid until the next read.
type request struct {
	line    []byte // the method line, without blanks at its ends
	headers []header
	body    []byte
	length  int // in the buffer
}

// header is an unescaped header, from one or more lines.
type header struct{ name, value []byte }

// verb returns the command: the method line up to its first space, or all of it without a space.
func (r *request) verb() []byte {
	if i := bytes.IndexByte(r.line, ' '); i >= 0 {
		return r.line[:i]
	}
	return r.line
}

// get returns the value of a header, with its name in any letter case. The last header with the
// name counts. nil means that it is missing or empty.
func (r *request) get(name string) []byte {
	for i := len(r.headers) - 1; i >= 0; i-- {
		if same(r.headers[i].name, name) {
			if len(r.headers[i].value) == 0 {
				return nil
			}
			return r.headers[i].value
		}
	}
	return nil
}

// is reports whether a header has this value, in any letter case. It is true for an empty value if
// the header is missing.
func (r *request) is(name, value string) bool { return same(r.get(name), value) }

// flag reports whether a header is true or 1.
func (r *request) flag(name string) bool {
	v := r.get(name)
	return same(v, "true") || string(v) == "1"
}

// same reports whether b and s are equal, without regard to the case of ASCII letters.
func same(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range len(s) {
		if x, y := b[i], s[i]; x != y && (x|0x20 != y|0x20 || x|0x20 < 'a' || x|0x20 > 'z') {
			return false
		}
	}
	return true
}

// trim returns b without blanks at both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return trimRight(b)
}

// trimRight returns b without blanks at its end.
func trimRight(b []byte) []byte {
	for len(b) > 0 && isBlank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// isBlank reports whether c is a space or a tab.
func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isEnd reports whether c is a line feed or a carriage return.
func isEnd(c byte) bool { return c == '\n' || c == '\r' }

// whole parses a decimal number of 1 to 18 digits without a sign. ok is false for any other text.
func whole(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// hex parses a number of 1 to 8 hexadecimal digits in any letter case. The second result is false
// for any other text.
func hex(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 8 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		d, ok := digit(c)
		if !ok {
			return 0, false
		}
		n = n<<4 | int64(d)
	}
	return n, true
}

// digit returns the value of a hexadecimal digit in any letter case. The second result is false
// for another character.
func digit(c byte) (int, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10, true
	}
	return 0, false
}

// compose appends a request with escaped values, and Content-Length unless body is empty. Reading
// it returns the same values, if the names are valid.
func compose(out []byte, line string, headers [][2]string, body string) []byte {
	out = append(append(out, line...), "\r\n"...)
	for _, h := range headers {
		out = append(append(out, h[0]...), ": "...)
		out = append(escape(out, h[1]), "\r\n"...)
	}
	if body != "" {
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), int64(len(body)), 10), "\r\n"...)
	}
	return append(append(out, "\r\n"...), body...)
}
