package redisevents

import (
	"slices"

	"github.com/swarmiji/swarmiji/events"
)

// same stands for "the message itself" among the arguments of the script.
const same = "="

// keep returns what of a message of n events has to be kept, and how many that are: the message itself, which is then
// not sent twice, a part of it, or nothing.
func keep(r events.Retention, message []byte, n int) (kept any, count int) {
	if !r.On() {
		return "", 0
	}
	if r.Types == nil {
		return same, n
	}
	es, err := events.Decode(message)
	if err != nil { // it was encoded a moment ago
		return "", 0
	}
	all := len(es)
	es = slices.DeleteFunc(es, func(e events.Event) bool { return !r.Keeps(e.Type) })
	switch len(es) {
	case all:
		return same, n
	case 0:
		return "", 0
	}
	part, err := events.Encode(es)
	if err != nil {
		return "", 0
	}
	return part, len(es)
}
