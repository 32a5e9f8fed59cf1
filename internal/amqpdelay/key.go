package amqpdelay

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

const (
	// levels levels are enough for 8.7 years. The server refuses a time to live of 2^41 ms or more.
	levels   = 38
	maxDelay = 1<<levels - 1 // ms
	// delayBits is the number of binary digits of a delay that are kept: it is rounded up by at most
	// 1/32. That limits the number of its levels.
	delayBits = 6
	// coarsest limits the rounding to multiples of 2^10 ms.
	coarsest = 10
)

// millis returns d in milliseconds, rounded up to delayBits binary digits, at most to a multiple of
// 1,024 ms, at least 1. Returns ErrUnsupported for more than 8.7 years.
func millis(d time.Duration) (int64, error) {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	ms = max(ms, 1)
	unit := lowestBit(bits.Len64(uint64(ms)) - 1)
	ms = (ms + 1<<unit - 1) >> unit << unit
	if ms > maxDelay {
		return 0, fmt.Errorf("%w: a delay of %v is longer than 8.7 years", broker.ErrUnsupported, d)
	}
	return ms, nil
}

// lowestBit returns the lowest bit that a delay may have whose highest bit is the given one.
func lowestBit(highest int) int { return min(max(highest+1-delayBits, 0), coarsest) }

// key returns the routing key that delays a message by ms milliseconds and then routes it to the
// queue of the given topic.
func key(ms int64, topic string) string {
	var s strings.Builder
	s.Grow(3*bits.OnesCount64(uint64(ms)) + 2 + len(topic))
	for level := range levels {
		if ms>>level&1 == 1 {
			s.WriteString(levelWord(level))
			s.WriteByte('.')
		}
	}
	s.WriteString("q.")
	s.WriteString(topic)
	return s.String()
}

// levelWord returns the word for a delay level in names and routing keys: two digits.
func levelWord(level int) string {
	const digits = "0123456789"
	return string(digits[level/10]) + string(digits[level%10])
}

// topic returns the word for queue at the end of a delayed message's routing key: the name without
// the prefix trim. It replaces dots by slashes, because a dot ends a word.
func topic(trim, queue string) string {
	return strings.ReplaceAll(strings.TrimPrefix(queue, trim), ".", "/")
}
