package events

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON (RFC 8259) strictly and in bounds: nesting and the number of values are limited, and nothing is
// allocated before the text for it is there. It is written by hand because a listener decodes several events per task:
// encoding/json would take about five times as long through maps, and its memory cannot be bounded.
type scanner struct {
	data   []byte
	pos    int
	values int // read into trees since it was set to 0
}

// Bounds of one event in Decode. Beyond them a message is refused as hostile.
const (
	maxNesting = 32
	maxValues  = 4096
)

func (s *scanner) fail(what string) error {
	return fmt.Errorf("%w: %s at byte %d", ErrMalformed, what, s.pos)
}

// peek skips white space and returns the next byte, 0 at the end. A NUL byte in the text is refused wherever it is met.
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

// take skips white space and, if c is next, c.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// members calls f at the value of each member of the map that is next; f has to read it.
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

// elements calls f at each element of the list that is next; f has to read it.
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

// text reads a string. The bytes are a part of the data where it holds no escape, so they are valid until the data change;
// they may be invalid UTF-8.
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

// escaped reads on at the first escape of a string that began at start.
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

// surrogate joins first with the second half that follows; a half alone is U+FFFD.
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

// hex reads four hexadecimal digits at a place.
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

// number reads the text of a number.
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

// float reads a number.
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

// word takes the given literal if it is next.
func (s *scanner) word(w string) bool {
	s.peek()
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

// value reads any value into a tree of the types of JSON. depth is that of the value, from 1.
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
