package bedrock

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// timeForm is how times are written and, in a longer or shorter form, read. They are in UTC.
const timeForm = "2006-01-02 15:04:05"

// appendValue writes a stored text as answers show it: what looks like an integer is a number, true, false and null are themselves,
// a JSON object or array is one, and all else is a string.
func appendValue(out []byte, s string) []byte {
	switch {
	case s == "true" || s == "false" || s == "null" || integer(s):
		return append(out, s...)
	case len(s) >= 2 && (s[0] == '{' && s[len(s)-1] == '}' || s[0] == '[' && s[len(s)-1] == ']') && json.Valid([]byte(s)):
		return append(out, s...)
	}
	return appendString(out, s)
}

// integer reports whether s is how an int64 is written.
func integer(s string) bool {
	if len(s) == 0 || len(s) > 20 || s[len(s)-1] < '0' || s[len(s)-1] > '9' {
		return false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return false
	}
	var b [20]byte
	return string(strconv.AppendInt(b[:0], n, 10)) == s
}

// appendData writes data, which are JSON already.
func appendData(out, data []byte) []byte {
	if len(data) == 0 {
		return append(out, `""`...)
	}
	return append(out, data...)
}

// appendTime writes a time as a string; the zero one is "".
func appendTime(out []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(out, `""`...)
	}
	out = append(out, '"')
	out = t.UTC().AppendFormat(out, timeForm)
	return append(out, '"')
}

const digits = "0123456789abcdef"

// appendString writes a JSON string. What is no UTF-8 becomes the sign for what is no character.
func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\r':
			out = append(out, '\\', 'r')
		case c == '\t':
			out = append(out, '\\', 't')
		case c < ' ' || c == 0x7f:
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// key writes the name of a field. The first one of an object follows its brace, which nothing else can end with.
func key(out []byte, name string) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	return append(append(append(out, '"'), name...), `":`...)
}

// object reports whether b is one JSON object.
func object(b []byte) bool { return len(b) >= 2 && b[0] == '{' && json.Valid(b) }

// emptyList reports whether b is a list without elements, which some clients send for an object without fields.
func emptyList(b []byte) bool {
	return len(b) >= 2 && b[0] == '[' && b[len(b)-1] == ']' && len(bytes.TrimSpace(b[1:len(b)-1])) == 0
}
