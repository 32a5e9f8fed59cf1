package redisevents

import (
	"slices"

	"github.com/swarmiji/swarmiji/events"
)

// sameMessage is the script argument for "keep the whole message".
const sameMessage = "="

// retained returns the part of a message of n events that r keeps, and its number of events. kept,
// the first result, is one of these:
//
//   - sameMessage, if all are kept, so that the message is sent only once
//   - a new message with the kept events
//   - "", with the number 0, if none is kept
func retained(r events.Retention, message []byte, n int) (kept any, count int) {
	if !r.On() {
		return "", 0
	}
	if r.Types == nil {
		return sameMessage, n
	}
	es, err := events.Decode(message)
	if err != nil { // impossible: the message was encoded by the Batcher
		return "", 0
	}
	all := len(es)
	es = slices.DeleteFunc(es, func(e events.Event) bool { return !r.Keeps(e.Type) })
	switch len(es) {
	case all:
		return sameMessage, n
	case 0:
		return "", 0
	}
	part, err := events.Encode(es)
	if err != nil {
		return "", 0
	}
	return part, len(es)
}
