// Package amqpconn keeps an AMQP 0-9-1 connection to RabbitMQ alive and is the common base of the
// AMQP adapters. It provides supervised channels and confirmed publishing. It depends on no port;
// adapters add the error of their port to those of this package.
//
// # A connection
//
//	conn, err := amqpconn.New(amqpconnect.Config{URLs: urls}, "orders", logger)
//
// New does no I/O and starts no goroutine; the first use connects. A lost connection is made again
// until Close, with a full-jitter backoff over all URLs. Each new connection is a [Session] with
// the next generation number. Channels, delivery tags and confirmations of an old session are
// invalid in a new one.
//
//	sess, err := conn.Session(ctx)            // waits; ErrUnavailable, ErrAccess, ErrClosed
//	err = conn.Do(ctx, func(ch *amqp.Channel) error { ... }) // declarations on a temporary channel
//	stop := conn.Watch(func(s State, err error) { ... })
//	err = conn.Close(ctx)
//
// Publish and consume on two Conns. A server under a memory or disk alarm stops reading from every
// connection that has published, so that no other operation works on it either.
//
// # Consuming
//
// [Conn.Supervise] keeps one channel open until its ctx ends. It calls a function with a new
// channel, and again after a pause when that function has returned. The function therefore repeats
// its declarations after each reconnect:
//
//	conn.Supervise(ctx, func(ctx context.Context, ch *amqpconn.Channel) error {
//		if _, err := ch.QueueDeclare(...); err != nil {
//			return err
//		}
//		deliveries, err := ch.Consume(...)
//		if err != nil {
//			return err
//		}
//		for d := range deliveries { ... } // ends when the channel does
//		return ch.Err()                   // the reason
//	}, func(err error) { ... })           // called after each failure
//
// Methods of [amqp.Channel] that wait for an answer have no ctx. They return at the latest when the
// session ends, which happens when the heartbeats of a silent server are missing. Methods that only
// send never block, because a session writes to a buffer.
//
// # Publishing
//
//	pub := amqpconn.NewPublisher(conn, amqpconn.PublisherConfig{})
//	err := pub.Publish(ctx, exchange, key, &amqp.Publishing{...}) // nil: confirmed and routed
//	errs := pub.PublishBatch(ctx, []amqpconn.Outgoing{...})       // nil, or one error per message
//
// A Publisher opens its channel at the first use and again after each loss. With
// PublisherConfig.Unconfirmed it does not wait for confirmations, for events. The errors of a
// publish are ErrUnroutable, ErrRefused, ErrBlocked, ErrUnavailable, ErrAccess, ErrClosed,
// ErrIndeterminate and ErrMalformed. A message that may have been sent is never sent again.
package amqpconn
