package serializer

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxJSONDepth is the maximum nesting of JSON arrays and objects.
const MaxJSONDepth = 64

const (
	maxJSONTokens   = 1 << 20 // values and keys, plus one for each 16 bytes
	maxJSONExponent = 1000    // a larger one exceeds float64 with any digits
	linearKeys      = 16      // more keys of an object are sorted to find duplicates
)

// Limits of the memory for decoding into variables of type any, as in internal/rawmsgpack.
const (
	jsonMemoryFactor = 32
	jsonMemoryFree   = 16 << 20
	jsonCostValue    = 32  // an element of []any and its value
	jsonCostObject   = 64  // an empty map
	jsonCostMembers  = 288 // first group of slots of a map with members
	jsonCostMember   = 80
)

// ScanJSON returns nil if data is one JSON value (RFC 8259) that is safe to decode. Otherwise the
// error wraps [ErrMalformed]. It works without recursion, in a small multiple of len(data) of
// memory. It refuses input that parsers read in different ways or at high cost:
//
//   - the same key twice in an object, also if one of them is written with escapes,
//   - numbers outside the range of float64,
//   - invalid UTF-8 and lone surrogates,
//   - nesting deeper than [MaxJSONDepth],
//   - more than about a million values,
//   - input whose decoding into any would need more than 32 times its size plus 16 MiB, and
//   - data after the value.
func ScanJSON(data []byte) error { return scanJSON(data, MaxJSONDepth) }

// scanJSON does the work of [ScanJSON] with depth as the largest nesting, which is at most
// MaxJSONDepth.
func scanJSON(data []byte, depth int) error {
	s := jsonScanner{data: data, limit: depth}
	if err := s.scan(); err != nil {
		return fmt.Errorf("%w: JSON: %w at byte %d", ErrMalformed, err, s.pos)
	}
	return nil
}

// jsonError is the reason for which a text is refused.
type jsonError string

// Error returns the reason.
func (e jsonError) Error() string { return string(e) }

const (
	errCut       jsonError = "cut short"
	errTrailing  jsonError = "something follows the value"
	errDepth     jsonError = "nested too deep"
	errTokens    jsonError = "too many values"
	errMemory    jsonError = "too many small values"
	errDuplicate jsonError = "a key occurs twice"
	errNumber    jsonError = "bad number"
	errRange     jsonError = "number beyond the range of float64"
	errString    jsonError = "bad string"
	errUTF8      jsonError = "invalid UTF-8"
	errSurrogate jsonError = "lone surrogate"
	errSyntax    jsonError = "unexpected character"
)

// jsonFrame is an open array or object.
type jsonFrame struct {
	object bool
	keys   int // index in jsonScanner.keys of the object's first key
}

// jsonScanner examines data from pos on. It does not decode values. Each method moves pos behind
// the text that it has examined, and returns a jsonError for a text that is refused.
type jsonScanner struct {
	data   []byte
	pos    int
	limit  int // largest nesting
	depth  int // number of open arrays and objects
	stack  [MaxJSONDepth]jsonFrame
	keys   [][]byte // of all open objects, unescaped
	tokens int      // number of values and keys so far
	cost   int      // estimated bytes of memory of the decoded values so far
}

// scan examines the whole value. It alternates between the position before a value and after a
// value.
func (s *jsonScanner) scan() error {
	for {
		opened, err := s.value()
		if err != nil {
			return err
		}
		if opened {
			continue // an array or object with an element: its first value is next
		}
		done, err := s.after()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// value examines a value up to its end. If it is an array or object with an element, it stops
// before the first element's value, and opened is true.
func (s *jsonScanner) value() (opened bool, err error) {
	if err := s.token(jsonCostValue); err != nil {
		return false, err
	}
	switch c := s.next(); {
	case c == '{' || c == '[':
		return s.open(c)
	case c == '"':
		_, err := s.str(false)
		return false, err
	case c == '-' || c >= '0' && c <= '9':
		return false, s.number()
	case c == 't':
		return false, s.literal("true")
	case c == 'f':
		return false, s.literal("false")
	case c == 'n':
		return false, s.literal("null")
	case c == 0 && s.pos >= len(s.data):
		return false, errCut
	}
	return false, errSyntax
}

// open examines the bracket c that begins an array or object, and for an object with members the
// first key. opened is false if the array or object has no element; then it is closed already.
func (s *jsonScanner) open(c byte) (opened bool, err error) {
	if s.depth >= s.limit {
		return false, errDepth
	}
	s.pos++
	s.stack[s.depth] = jsonFrame{object: c == '{', keys: len(s.keys)}
	s.depth++
	closing := c + 2 // in ASCII the closing bracket is two characters after the opening one
	if c == '{' {
		s.cost += jsonCostObject
	}
	if s.next() == closing {
		s.pos++
		s.depth--
		return false, nil
	}
	if c == '{' {
		s.cost += jsonCostMembers
		return true, s.key()
	}
	return true, nil
}

// after examines the text after a value: closing brackets, then a comma and, in an object, a key.
// done is true if that was the end of the whole text; otherwise a value follows.
func (s *jsonScanner) after() (done bool, err error) {
	for s.depth > 0 {
		f := s.stack[s.depth-1]
		c := s.next()
		switch {
		case c == ',':
			s.pos++
			if f.object {
				return false, s.key()
			}
			return false, nil
		case c == '}' && f.object:
			if err := s.distinct(f.keys); err != nil {
				return false, err
			}
		case c == ']' && !f.object:
		case s.pos >= len(s.data):
			return false, errCut
		default:
			return false, errSyntax
		}
		s.pos++
		s.depth--
	}
	if s.next(); s.pos < len(s.data) {
		return false, errTrailing
	}
	return true, nil
}

// key examines a key and its colon, and appends the key to s.keys.
func (s *jsonScanner) key() error {
	if err := s.token(jsonCostMember); err != nil {
		return err
	}
	if s.next() != '"' {
		if s.pos >= len(s.data) {
			return errCut
		}
		return errSyntax
	}
	k, err := s.str(true)
	if err != nil {
		return err
	}
	s.keys = append(s.keys, k)
	if s.next() != ':' {
		if s.pos >= len(s.data) {
			return errCut
		}
		return errSyntax
	}
	s.pos++
	return nil
}

// distinct removes the keys of a closing object, those in s.keys at the index from and after it. It
// returns errDuplicate if two of them are equal.
func (s *jsonScanner) distinct(from int) error {
	keys := s.keys[from:]
	s.keys = s.keys[:from]
	if len(keys) <= linearKeys {
		for i, k := range keys {
			for _, other := range keys[:i] {
				if bytes.Equal(k, other) {
					return errDuplicate
				}
			}
		}
		return nil
	}
	slices.SortFunc(keys, bytes.Compare)
	for i := range keys[1:] {
		if bytes.Equal(keys[i], keys[i+1]) {
			return errDuplicate
		}
	}
	return nil
}

// token counts a value or a key that needs about cost bytes of memory when decoded. It returns
// errTokens or errMemory beyond the limits for the size of the data.
func (s *jsonScanner) token(cost int) error {
	s.tokens++
	s.cost += cost
	if s.tokens > maxJSONTokens+len(s.data)/16 {
		return errTokens
	}
	if s.cost > jsonMemoryFactor*len(s.data)+jsonMemoryFree {
		return errMemory
	}
	return nil
}

// next skips white space and returns the byte at pos, without moving behind it. It returns 0 at the
// end.
func (s *jsonScanner) next() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// literal examines a word such as "true". It returns errCut if the data is shorter, and errSyntax
// for another text.
func (s *jsonScanner) literal(word string) error {
	rest := s.data[s.pos:]
	if len(rest) < len(word) {
		return errCut
	}
	if string(rest[:len(word)]) != word {
		return errSyntax
	}
	s.pos += len(word)
	return nil
}

// digits moves pos behind the decimal digits there and returns their number, which may be 0.
func (s *jsonScanner) digits() int {
	from := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - from
}

// at reports whether the byte at pos is c. It does not move pos.
func (s *jsonScanner) at(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

// number examines a number. It returns errNumber for a wrong form, and errRange for a number
// outside the range of float64.
func (s *jsonScanner) number() error {
	from := s.pos
	if s.at('-') {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if s.digits() == 0 {
		return errNumber
	}
	if s.at('.') {
		s.pos++
		if s.digits() == 0 {
			return errNumber
		}
	}
	exponent := s.at('e') || s.at('E')
	if exponent {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		start := s.pos
		if s.digits() == 0 {
			return errNumber
		}
		digits := bytes.TrimLeft(s.data[start:s.pos], "0")
		if len(digits) > 4 {
			return errRange
		}
		if n, _ := strconv.Atoi(string(digits)); n > maxJSONExponent {
			return errRange
		}
	}
	if exponent || s.pos-from > 300 {
		if _, err := strconv.ParseFloat(string(s.data[from:s.pos]), 64); err != nil {
			return errRange
		}
	}
	return nil
}

// str examines a string. If key is true it returns the text without escapes, which shares memory
// with the data unless it has some. Otherwise it returns nil.
func (s *jsonScanner) str(key bool) ([]byte, error) {
	s.pos++
	from := s.pos
	var text []byte // text of a key with escapes
	plain := from   // start of the part that is not in text yet
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			run := s.data[plain:s.pos]
			s.pos++
			switch {
			case !key:
				return nil, nil
			case plain == from:
				return run, nil
			}
			return append(text, run...), nil
		case c < ' ':
			return nil, errString
		case c == '\\':
			if key {
				text = append(text, s.data[plain:s.pos]...)
			}
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			if key {
				text = utf8.AppendRune(text, r)
			}
			plain = s.pos
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return nil, errUTF8
			}
			s.pos += size
		}
	}
	return nil, errCut
}

// escape examines an escape sequence and returns its character. A pair of surrogates is one
// character; a lone one is errSurrogate.
func (s *jsonScanner) escape() (rune, error) {
	s.pos++
	if s.pos >= len(s.data) {
		return 0, errCut
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
	default:
		return 0, errString
	}
	r, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if !s.at('\\') || s.pos+1 >= len(s.data) || s.data[s.pos+1] != 'u' {
		return 0, errSurrogate
	}
	s.pos += 2
	low, err := s.hex4()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, errSurrogate
	}
	return r, nil
}

// hex4 examines four hexadecimal digits and returns their value.
func (s *jsonScanner) hex4() (rune, error) {
	if len(s.data)-s.pos < 4 {
		return 0, errCut
	}
	var r rune
	for _, c := range s.data[s.pos : s.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errString
		}
		r = r<<4 | rune(c)
	}
	s.pos += 4
	return r, nil
}
