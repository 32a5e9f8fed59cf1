package events

import (
	"bytes"
	"slices"
	"strings"
)

// Select returns the part of a message of a [Batcher] whose types want selects, and its number of
// events. n is the number of events of the message. The part is the message itself if want selects
// all, and nil with the number 0 if it selects none. For authors of adapters.
func Select(message []byte, n int, want func(typ string) bool) (part []byte, count int) {
	es, err := Decode(message)
	if err != nil { // impossible: the message was encoded by a Batcher
		return nil, 0
	}
	some := make([]Event, 0, len(es))
	for i := range es {
		if want(es[i].Type) {
			some = append(some, es[i])
		}
	}
	switch len(some) {
	case len(es):
		return message, n
	case 0:
		return nil, 0
	}
	if part, err = Encode(some); err != nil {
		return nil, 0
	}
	return part, len(some)
}

// Decode returns the events of a message that f selects, as [Decode] does, or none. For authors of
// adapters.
//
// It does not decode a message in which none of f's types occurs as a JSON text: a process with
// many listeners for rare events would spend its time with all others. So a malformed message
// without any of the types is not reported. Encoders of other programs must write types without
// escapes.
func (f Filter) Decode(message []byte) ([]Event, error) {
	if len(f.Types) > 0 && !slices.ContainsFunc(f.Types, func(typ string) bool { return occurs(message, typ) }) {
		return nil, nil
	}
	es, err := Decode(message)
	return slices.DeleteFunc(es, func(e Event) bool { return !f.Match(&e) }), err
}

// occurs reports whether a message may have an event of a type.
func occurs(message []byte, typ string) bool {
	if typ == "" {
		return false // no event has this type
	}
	for i := range len(typ) {
		if c := typ[i]; c < ' ' || c > '~' || strings.IndexByte(`"\\<>&'/`, c) >= 0 {
			return true // encoders escape these in different ways
		}
	}
	for rest := message; ; {
		i := bytes.Index(rest, []byte(typ))
		if i < 0 {
			return false
		}
		end := i + len(typ)
		if i > 0 && rest[i-1] == '"' && end < len(rest) && rest[end] == '"' {
			return true
		}
		rest = rest[i+1:]
	}
}
