package amqpconn

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// statTime is the time that the server gives the leader of a quorum queue to tell its numbers.
	// Without an answer, as on a busy machine, the server says 0 messages and 0 consumers.
	statTime = 250 * time.Millisecond
	// statTries limits the questions for the numbers of a queue.
	statTries = 4
)

// Asker is the method of an [amqp.Channel] that [Numbers] calls.
type Asker interface {
	QueueDeclarePassive(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
}

// Numbers asks for the numbers of waiting messages and of consumers of an AMQP queue, and waits for
// the server. It asks again if both are 0 after statTime, at most statTries times: the server may
// not know them. Returns the server's "not found" if the queue does not exist.
func Numbers(ch Asker, name string) (q amqp.Queue, err error) {
	for range statTries {
		begin := time.Now()
		q, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil || q.Messages > 0 || q.Consumers > 0 || time.Since(begin) < statTime {
			break
		}
	}
	return q, err
}
