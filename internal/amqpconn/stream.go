package amqpconn

import amqp "github.com/rabbitmq/amqp091-go"

// ConsumeStream starts to read a stream queue from an offset: "first", "last" or "next", an int64 for a message's own, or a
// time.Time for about that time. At most prefetch messages are under way without an acknowledgement, which moves nothing
// but this window: a stream keeps what was read. An offset beyond the end gives nothing until the stream has come there.
func (s *Session) ConsumeStream(ch *amqp.Channel, stream string, offset any, prefetch int) (<-chan amqp.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil { // a stream has no consumers without
		return nil, err
	}
	var deliveries <-chan amqp.Delivery
	err := s.Answered(func() (err error) {
		deliveries, err = ch.Consume(stream, "", false, false, false, false, amqp.Table{"x-stream-offset": offset})
		return err
	})
	return deliveries, err
}
