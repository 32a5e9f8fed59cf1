package redisevents

import "github.com/swarmiji/swarmiji/events"

// sameMessage is the script argument for "keep the whole message".
const sameMessage = "="

// retained returns the part of a message of n events that r keeps, and its number of events. kept,
// the first result, is one of these:
//
//   - sameMessage, if all are kept, so that the message is sent only once
//   - a new message with the kept events
//   - "", with the number 0, if none is kept
func retained(r events.Retention, message []byte, n int) (kept any, count int) {
	switch {
	case !r.On():
		return "", 0
	case r.Types == nil:
		return sameMessage, n
	}
	part, count := events.Select(message, n, r.Keeps)
	switch count {
	case n:
		return sameMessage, n
	case 0:
		return "", 0
	}
	return part, count
}
