package bedrock

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// The functions of this file split valid JSON into its parts. Their results refer to the input.

// member is one member of a JSON object: its decoded key and its text as it was written.
type member struct {
	key  []byte
	text []byte // name, colon and value
	at   int    // position of the value in text
}

// value returns the text of the value.
func (m *member) value() []byte { return m.text[m.at:] }

// members returns an iterator over the members of an object, in order. The object must be valid
// JSON.
func members(object []byte) iter.Seq[member] {
	return func(yield func(member) bool) {
		for text := range elements(object) {
			name := endOf(text, 0)
			colon := name + bytes.IndexByte(text[name:], ':')
			if !yield(member{key: plainString(text[:name]), text: text, at: blanks(text, colon+1)}) {
				return
			}
		}
	}
}

// elements returns an iterator over the texts of the elements of an array, or of the members
// ("name: value") of an object. The text must be valid JSON.
func elements(of []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for at := blanks(of, blanks(of, 0)+1); of[at] != ']' && of[at] != '}'; {
			end := endOf(of, at)
			if next := blanks(of, end); of[next] == ':' {
				end = endOf(of, blanks(of, next+1))
			}
			if !yield(of[at:end]) {
				return
			}
			if at = blanks(of, end); of[at] == ',' {
				at = blanks(of, at+1)
			}
		}
	}
}

// blanks returns the position of the first byte, from the position at on, that is not white space;
// the length of text if no such byte follows.
func blanks(text []byte, at int) int {
	for at < len(text) && (isBlank(text[at]) || isEnd(text[at])) {
		at++
	}
	return at
}

// endOf returns the position behind the value that begins at at. The text must be valid JSON.
func endOf(text []byte, at int) int {
	for depth := 0; at < len(text); {
		switch text[at] {
		case '"':
			at = endOfString(text, at)
		case '{', '[':
			depth++
			at++
			continue
		case '}', ']':
			depth--
			at++
		default:
			for at++; at < len(text) && !isStop(text[at]); {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// endOfString returns the position behind the string whose first quote is at at. It panics if the
// string has no end.
func endOfString(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// isStop reports whether c ends a number or a word.
func isStop(c byte) bool {
	return c == ',' || c == ':' || c == ']' || c == '}' || c == '{' || c == '[' || c == '"' || isBlank(c) || isEnd(c)
}

// plainString returns the text of a JSON string without quotes and escapes. It refers to the input
// if the string has no escapes and is UTF-8. Otherwise it is a copy, in which invalid bytes become
// the replacement character.
func plainString(quoted []byte) []byte {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return inner
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // the string is valid
	return []byte(s)
}
