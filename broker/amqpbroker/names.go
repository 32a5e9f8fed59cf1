package amqpbroker

import "strconv"

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
