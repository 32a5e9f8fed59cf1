package amqpbroker

import (
	"strconv"
	"strings"
)

// names builds every AMQP name of a namespace; nothing else does. A namespace holds no dot, and a queue's name none of the
// characters ':' and '/', so no two names are the same.
type names struct{ prefix string } // "swj.<namespace>."

func newNames(namespace string) names { return names{"swj." + namespace + "."} }

// work is the AMQP queue of a whole queue, or of its middle level.
func (n names) work(queue string) string { return n.prefix + "q." + queue }

func (n names) level(queue string, bound int) string {
	return n.prefix + "q." + queue + ":p" + strconv.Itoa(bound)
}

func (n names) dead(queue string) string { return n.prefix + "dead." + queue }
func (n names) levels(queue string) string {
	return n.prefix + "levels." + queue
}

func (n names) starts() string        { return n.prefix + "starts" }
func (n names) acks() string          { return n.prefix + "acks" }
func (n names) deliver() string       { return n.prefix + "delay.deliver" }
func (n names) undeliverable() string { return n.prefix + "undeliverable" }

// delay is both the exchange and the queue of one level of the delay topology.
func (n names) delay(level int) string {
	const digits = "0123456789"
	return n.prefix + "delay." + string(digits[level/10]) + string(digits[level%10])
}

// topic is the last word of a delayed message's routing key. A word holds no dot; queues' names do.
func (n names) topic(amqpQueue string) string {
	return strings.ReplaceAll(strings.TrimPrefix(amqpQueue, n.prefix+"q."), ".", "/")
}
