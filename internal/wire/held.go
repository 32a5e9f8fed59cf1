package wire

import (
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Headers of a message that the broker holds until a time. They tell the consumer that the message
// is not early, even if the consumer's clock is behind. Both hold milliseconds since 1970, and
// count only while they equal the task's NotBefore.
const (
	HeaderHeld = "swarmiji-held" // int64: the broker was asked to hold the message until then
	HeaderTurn = "swarmiji-turn" // int64: set in addition; the task's rate limit lets it start then
)

// StampHeld sets a header of m to the time until which the broker will hold it. The zero time sets
// nothing.
func StampHeld(m *broker.Message, header string, at time.Time) {
	if at.IsZero() {
		return
	}
	if m.Headers == nil {
		m.Headers = make(map[string]any, 1)
	}
	m.Headers[header] = at.UnixMilli()
}

// Held reports whether the header of m is the time at, in milliseconds, as StampHeld has set it.
func Held(m *broker.Message, header string, at time.Time) bool {
	switch v := m.Headers[header].(type) {
	case int64:
		return v == at.UnixMilli()
	case string: // from a broker whose headers are texts
		return v == strconv.FormatInt(at.UnixMilli(), 10)
	}
	return false
}
