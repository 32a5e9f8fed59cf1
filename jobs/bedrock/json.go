package bedrock

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// timeForm is the format of times in answers and requests. They are in UTC.
const timeForm = "2006-01-02 15:04:05"

// appendValue appends a stored text as JSON. The text of an integer, true, false, null, a JSON
// object or array stays as it is. Any other text becomes a string.
func appendValue(out []byte, s string) []byte {
	switch {
	case s == "true" || s == "false" || s == "null" || integer(s):
		return append(out, s...)
	case len(s) >= 2 && (s[0] == '{' && s[len(s)-1] == '}' || s[0] == '[' && s[len(s)-1] == ']') && json.Valid([]byte(s)):
		return append(out, s...)
	}
	return appendString(out, s)
}

// integer reports whether s is the decimal form of an int64, without a plus sign or leading zeros.
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

// appendData appends data, which are JSON. Empty data become "".
func appendData(out, data []byte) []byte {
	if len(data) == 0 {
		return append(out, `""`...)
	}
	return append(out, data...)
}

// appendTime appends a time as a JSON string in UTC, to the second (timeForm). The zero time
// becomes "".
func appendTime(out []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(out, `""`...)
	}
	out = append(out, '"')
	out = t.UTC().AppendFormat(out, timeForm)
	return append(out, '"')
}

const digits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are not UTF-8 become the replacement
// character. It escapes quotes, backslashes and control characters.
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

// key appends a quoted name and a colon, for a field of an object. It first appends a comma unless
// out ends with "{". out must not be empty.
func key(out []byte, name string) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	return append(append(append(out, '"'), name...), `":`...)
}

// object reports whether b is one JSON object.
func object(b []byte) bool { return len(b) >= 2 && b[0] == '{' && json.Valid(b) }

// emptyList reports whether b is an array without elements, which some clients send for an object
// without fields.
func emptyList(b []byte) bool {
	return len(b) >= 2 && b[0] == '[' && b[len(b)-1] == ']' && len(bytes.TrimSpace(b[1:len(b)-1])) == 0
}
