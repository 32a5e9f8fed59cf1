package events

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON (RFC 8259) strictly and within limits: nesting and the number of values are
// limited, and it allocates no memory before it has read the text for it. A listener decodes
// several events per task. encoding/json takes about five times as long with maps, and its memory
// cannot be limited.
type scanner struct {
	data   []byte
	pos    int
	values int // number of values read by value since it was set to 0
}

// Limits of one event in Decode. A message beyond them is refused as hostile.
const (
	maxNesting = 32
	maxValues  = 4096
)

// fail returns ErrMalformed with the reason what and the current position.
func (s *scanner) fail(what string) error {
	return fmt.Errorf("%w: %s at byte %d", ErrMalformed, what, s.pos)
}

// peek skips white space and returns the next byte without reading it. It returns 0 at the end; a
// NUL byte in the data is refused by every caller.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// take skips white space and reads c if it is the next byte. It reports whether it was.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// members reads a map. It calls f at the value of each member, and f must read that value. Returns
// ErrMalformed or the error of f.
func (s *scanner) members(f func(key []byte) error) error {
	if !s.take('{') {
		return s.fail("want a map")
	}
	if s.take('}') {
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.fail("want ':'")
		}
		if err := f(key); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.fail("want ',' or '}'")
		}
	}
}

// elements reads a list. It calls f at each element, and f must read it. Returns ErrMalformed or
// the error of f.
func (s *scanner) elements(f func() error) error {
	if !s.take('[') {
		return s.fail("want a list")
	}
	if s.take(']') {
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.fail("want ',' or ']'")
		}
	}
}

// text reads a string. Without escapes the result is a part of data, so it is valid until data
// changes. It may be invalid UTF-8. Returns ErrMalformed if no string is next, or it has a control
// character, an invalid escape or no end.
func (s *scanner) text() ([]byte, error) {
	if !s.take('"') {
		return nil, s.fail("want a string")
	}
	start := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			t := s.data[start:s.pos]
			s.pos++
			return t, nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return nil, s.fail("control character in a string")
		}
	}
	return nil, s.fail("string without end")
}

// escaped reads the rest of a string from its first escape on and returns the whole decoded string
// in new memory. The string began at start. Returns ErrMalformed for an invalid escape, a control
// character or a missing end.
func (s *scanner) escaped(start int) ([]byte, error) {
	out := append(make([]byte, 0, s.pos-start+32), s.data[start:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			s.pos++
			return out, nil
		case c < 0x20:
			return nil, s.fail("control character in a string")
		case c != '\\':
			out = append(out, c)
			s.pos++
			continue
		}
		s.pos++
		if s.pos == len(s.data) {
			break
		}
		switch c := s.data[s.pos]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := s.hex(s.pos + 1)
			if !ok {
				return nil, s.fail("bad \\u escape")
			}
			s.pos += 4
			if utf16.IsSurrogate(r) {
				r = s.surrogate(r)
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, s.fail("bad escape")
		}
		s.pos++
	}
	return nil, s.fail("string without end")
}

// surrogate returns the rune of the surrogate half first and the half that follows, and reads that
// one. Without a second half it returns U+FFFD.
func (s *scanner) surrogate(first rune) rune {
	at := s.pos + 1
	if at+1 < len(s.data) && s.data[at] == '\\' && s.data[at+1] == 'u' {
		if second, ok := s.hex(at + 2); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				s.pos += 6
				return r
			}
		}
	}
	return utf8.RuneError
}

// hex returns the value of the four hexadecimal digits at an index of data. ok is false if one of
// them is missing.
func (s *scanner) hex(at int) (rune, bool) {
	if at+4 > len(s.data) {
		return 0, false
	}
	var r rune
	for _, c := range s.data[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number skips white space, reads a number and returns its text, which is a part of data. Returns
// ErrMalformed if no valid JSON number is next.
func (s *scanner) number() ([]byte, error) {
	s.peek()
	start := s.pos
	digits := func() bool {
		from := s.pos
		for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > from
	}
	at := func(cs ...byte) bool {
		for _, c := range cs {
			if s.pos < len(s.data) && s.data[s.pos] == c {
				s.pos++
				return true
			}
		}
		return false
	}
	at('-')
	if !at('0') && !digits() {
		return nil, s.fail("want a number")
	}
	if at('.') && !digits() {
		return nil, s.fail("number without a fraction after '.'")
	}
	if at('e', 'E') {
		at('+', '-')
		if !digits() {
			return nil, s.fail("number without an exponent after 'e'")
		}
	}
	return s.data[start:s.pos], nil
}

// float reads a number and returns its value. Returns ErrMalformed if it does not fit a float64.
func (s *scanner) float() (float64, error) {
	t, err := s.number()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(t), 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, s.fail("number out of range")
	}
	return f, nil
}

// word reads the literal w if it is next. It reports whether it was.
func (s *scanner) word(w string) bool {
	s.peek()
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

// value reads any value into nil, bool, float64, string, []any or map[string]any. depth is the
// nesting of the value, from 1. Of two members with one name the last counts. Returns ErrMalformed
// for invalid JSON, a number out of range, and beyond maxValues or maxNesting.
func (s *scanner) value(depth int) (any, error) {
	if s.values++; s.values > maxValues {
		return nil, s.fail("too many values")
	}
	if depth > maxNesting {
		return nil, s.fail("nested too deep")
	}
	switch s.peek() {
	case '"':
		t, err := s.text()
		return string(t), err
	case '{':
		m := map[string]any{}
		err := s.members(func(key []byte) error {
			k := string(key)
			v, err := s.value(depth + 1)
			m[k] = v
			return err
		})
		return m, err
	case '[':
		list := []any{}
		err := s.elements(func() error {
			v, err := s.value(depth + 1)
			list = append(list, v)
			return err
		})
		return list, err
	case 't':
		if s.word("true") {
			return true, nil
		}
	case 'f':
		if s.word("false") {
			return false, nil
		}
	case 'n':
		if s.word("null") {
			return nil, nil
		}
	default:
		return s.float()
	}
	return nil, s.fail("want a value")
}
