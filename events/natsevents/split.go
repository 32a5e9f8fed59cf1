package natsevents

import (
	"bytes"

	"github.com/swarmiji/swarmiji/events"
)

// split returns the events of a message that a Batcher has written, a JSON list of maps, each as the map that it is. They
// share the message's memory.
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

// prefixOf returns how each event of a type begins that a Batcher has written, or nil: none can be of that type.
func prefixOf(typ string) []byte {
	message, err := events.Encode([]events.Event{{Type: typ}})
	if err != nil {
		return nil
	}
	prefix, _, _ := bytes.Cut(message[1:], []byte(`,"node-id"`)) // which a type cannot hold: its quotes are escaped
	return append(prefix, ',')
}

// pack joins events to lists of at most limit bytes each, where they fit.
func pack(parts [][]byte, limit int) [][]byte {
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
