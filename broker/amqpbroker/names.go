package amqpbroker

import (
	"strconv"
	"strings"
)

// names builds all AMQP names of a namespace. A namespace holds no dot, and a queue name holds
// neither ':' nor '/', so all names differ.
type names struct{ prefix string } // "swj.<namespace>."

// newNames returns the names of a namespace.
func newNames(namespace string) names { return names{"swj." + namespace + "."} }

// work returns the name of the AMQP queue of a queue, or of its middle level.
func (n names) work(queue string) string { return n.prefix + "q." + queue }

// level returns the name of the AMQP queue of the priority level with the given bound.
func (n names) level(queue string, bound int) string {
	return n.prefix + "q." + queue + ":p" + strconv.Itoa(bound)
}

// lane returns the name of the AMQP queue of a lane, 1 to 3, of the level in amqpQueue.
func (n names) lane(amqpQueue string, lane int) string { return amqpQueue + ":f" + strconv.Itoa(lane) }

// dead returns the name of the AMQP queue that holds a queue's dead letters.
func (n names) dead(queue string) string { return n.prefix + "dead." + queue }

// levels returns the name of the stream that holds the priority levels and the fairness of a queue.
func (n names) levels(queue string) string {
	return n.prefix + "levels." + queue
}

// starts returns the name of the stream with the notes of starts and the answers of nodes.
func (n names) starts() string { return n.prefix + "starts" }

// acks returns the name of the stream with the acknowledgement notes.
func (n names) acks() string { return n.prefix + "acks" }

// deliver returns the name of the exchange at the end of the delay levels.
func (n names) deliver() string { return n.prefix + "delay.deliver" }

// undeliverable returns the name of the exchange and queue for due messages without a queue.
func (n names) undeliverable() string { return n.prefix + "undeliverable" }

// delayEnter returns the name of the exchange to which delayed messages are published.
func (n names) delayEnter() string { return n.prefix + "delay.enter" }

// delayReady returns the name of the exchange that exists when all delay levels do.
func (n names) delayReady() string { return n.prefix + "delay.ready" }

// delay returns the name of both the exchange and the queue of a delay level, 0 to 37. Versions
// until November 2026 had levels with other bindings, named "delay.00" to "delay.37".
func (n names) delay(level int) string { return n.prefix + "delay.step." + levelWord(level) }

// levelWord returns the word for a delay level in names and routing keys: two digits.
func levelWord(level int) string {
	const digits = "0123456789"
	return string(digits[level/10]) + string(digits[level%10])
}

// topic returns the word for an AMQP queue at the end of a delayed message's routing key. It
// replaces dots by slashes, because a dot ends a word.
func (n names) topic(amqpQueue string) string {
	return strings.ReplaceAll(strings.TrimPrefix(amqpQueue, n.prefix+"q."), ".", "/")
}
