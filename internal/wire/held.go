package wire

import (
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// The headers of a message that the broker holds back. They tell the consumer that it is not early,
// whatever the consumer's clock says. Both are milliseconds since 1970, and count only while they
// equal the task's NotBefore.
const (
	HeaderHeld = "swarmiji-held" // int64: the broker was asked to hold the message until then
	HeaderTurn = "swarmiji-turn" // int64: beside it; the task's rate lets it start then
)

// StampHeld says that m is published to be held back until at; zero: it is not.
func StampHeld(m *broker.Message, header string, at time.Time) {
	if at.IsZero() {
		return
	}
	if m.Headers == nil {
		m.Headers = make(map[string]any, 1)
	}
	m.Headers[header] = at.UnixMilli()
}

// Held reports whether m says in this header that it was held back until at.
func Held(m *broker.Message, header string, at time.Time) bool {
	switch v := m.Headers[header].(type) {
	case int64:
		return v == at.UnixMilli()
	case string: // of a broker whose headers are texts
		return v == strconv.FormatInt(at.UnixMilli(), 10)
	}
	return false
}
