package natsevents

import (
	"bytes"

	"github.com/swarmiji/swarmiji/events"
)

// split returns the events of a message of a Batcher, which is a JSON list of n maps. Each part is
// the JSON of one map and shares the message's memory. The message must be valid JSON; n only sizes
// the result.
func split(message []byte, n int) [][]byte {
	parts := make([][]byte, 0, n)
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(message); i++ {
		switch c := message[i]; {
		case quoted:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			if depth++; depth == 2 {
				start = i
			}
		case c == '}' || c == ']':
			if depth--; depth == 1 {
				parts = append(parts, message[start:i+1:i+1])
			}
		}
	}
	return parts
}

// prefixOf returns the first bytes of every event of a type in a message of a Batcher. It returns
// nil if no event can have that type.
func prefixOf(typ string) []byte {
	message, err := events.Encode([]events.Event{{Type: typ}})
	if err != nil {
		return nil
	}
	// a type cannot contain this: its quotes are escaped
	prefix, _, _ := bytes.Cut(message[1:], []byte(`,"node-id"`))
	return append(prefix, ',')
}

// joinEvents joins events to JSON lists of at most limit bytes each. A single event that is larger
// gets a list of its own.
func joinEvents(parts [][]byte, limit int) [][]byte {
	var messages [][]byte
	for len(parts) > 0 {
		n, size := 1, 2+len(parts[0])
		for n < len(parts) && size+1+len(parts[n]) <= limit {
			size += 1 + len(parts[n])
			n++
		}
		message := append(make([]byte, 0, size), '[')
		message = append(message, bytes.Join(parts[:n], []byte{','})...)
		messages = append(messages, append(message, ']'))
		parts = parts[n:]
	}
	return messages
}
