package lanes

import "github.com/swarmiji/swarmiji/broker"

// Header is the name under which Headers of a received message hold its lane, an int64 of 1 to 3.
// A message of lane 0 has no such header. A retry copies the headers and so keeps the lane.
const Header = "swj-lane"

// Of returns the lane in the headers of m, or 0 if they hold no valid one.
func Of(m *broker.Message) int {
	if len(m.Headers) == 0 {
		return 0
	}
	n, _ := m.Headers[Header].(int64)
	if n < 0 || n >= Count {
		return 0
	}
	return int(n)
}

// Set sets the header of a received message m to lane. It does nothing for lane 0 and for a number
// that is not valid.
func Set(m *broker.Message, lane int64) {
	if lane <= 0 || lane >= Count {
		return
	}
	if m.Headers == nil {
		m.Headers = make(map[string]any, 1)
	}
	m.Headers[Header] = lane
}
