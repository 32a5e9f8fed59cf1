package bedrock

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape replaces the escapes of a value in place and returns the result, which is never longer.
// The escapes b, f, n, r, t and u with four hex digits mean the same as in JSON. Any other
// character behind a backslash means itself, also u without such digits. A backslash at the end
// stays.
func unescape(b []byte) []byte {
	from := bytes.IndexByte(b, '\\')
	if from < 0 {
		return b
	}
	to := from
	for from < len(b) {
		if b[from] != '\\' || from+1 == len(b) {
			b[to] = b[from]
			from, to = from+1, to+1
			continue
		}
		c := b[from+1]
		from += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			if r, n := codePoint(b[from:]); n > 0 {
				to += utf8.EncodeRune(b[to:], r)
				from += n
				continue
			}
		}
		b[to] = c
		to++
	}
	return b[:to]
}

// codePoint decodes the four hex digits after \u, and a second \u escape that forms a surrogate
// pair with them. n is the number of bytes read, 4 or 10; 0 means that b does not begin with four
// hex digits. Half of a pair alone is returned as it is: utf8.EncodeRune then writes the
// replacement character.
func codePoint(b []byte) (r rune, n int) {
	first, ok := unit(b)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(first) && len(b) >= 10 && b[4] == '\\' && b[5] == 'u' {
		if second, ok := unit(b[6:]); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r, 10
			}
		}
	}
	return first, 4 // half of a pair becomes the replacement character
}

// unit decodes the four hexadecimal digits at the start of b. The second result is false if b does
// not begin with four.
func unit(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n, ok := hex(b[:4])
	return rune(n), ok
}

// escape appends s in the form that unescape decodes, on one line. It escapes line ends, tabs,
// backslashes, and a blank at either end.
func escape(out []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c == '\\':
			out = append(out, `\\`...)
		case c == ' ' && (i == 0 || i == len(s)-1):
			out = append(out, `\u0020`...)
		default:
			out = append(out, c)
		}
	}
	return out
}
