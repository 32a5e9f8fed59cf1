package amqpconn

import amqp "github.com/rabbitmq/amqp091-go"

// ConsumeStream starts to read a stream queue from an offset: "first", "last" or "next", an int64
// for the offset of a message, or a time.Time for approximately that time. At most prefetch
// messages are unacknowledged at the same time. An acknowledgement only moves this window, because
// a stream keeps read messages. An offset after the end delivers nothing until the stream reaches
// it.
//
// It waits for the server, see [Session.Answered], and returns its error, for example if the stream
// does not exist. The returned channel is closed when the consumer or ch ends.
func (s *Session) ConsumeStream(ch *amqp.Channel, stream string, offset any, prefetch int) (<-chan amqp.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil { // required for a consumer of a stream
		return nil, err
	}
	var deliveries <-chan amqp.Delivery
	err := s.Answered(func() (err error) {
		deliveries, err = ch.Consume(stream, "", false, false, false, false, amqp.Table{"x-stream-offset": offset})
		return err
	})
	return deliveries, err
}
