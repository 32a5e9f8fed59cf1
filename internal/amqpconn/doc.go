// Package amqpconn keeps an AMQP 0-9-1 connection to RabbitMQ alive and gives adapters what they share: supervised
// channels and confirmed publishing. It knows no port; adapters put a port's error class beside the ones of this package.
//
// # A connection
//
//	conn, err := amqpconn.New(amqpconnect.Config{URLs: urls}, "orders", logger)
//
// New does no I/O and starts no goroutine; the first use connects. A lost connection is made again for as long as the Conn
// is open, with a full-jitter backoff over all URLs. Each successful connect is a [Session] with the next generation number;
// nothing of an old session (channels, delivery tags, confirms) is valid in a new one, and nothing is carried over.
//
//	sess, err := conn.Session(ctx)            // waits; ErrUnavailable, ErrAccess, ErrClosed
//	err = conn.Do(ctx, func(ch *amqp.Channel) error { ... }) // declare and the like on a throw-away channel
//	stop := conn.Watch(func(s State, err error) { ... })
//	err = conn.Close(ctx)
//
// Publish and consume on two Conns: a server under a memory or disk alarm stops reading from every connection that has
// published, and then nothing else works on that connection either.
//
// # Consuming
//
// [Conn.Supervise] keeps one channel open until its ctx ends: it calls a function with each new channel, and again, after a
// pause, when that function has returned. What the function declares is thus declared again after each reconnect:
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
//		return ch.Err()                   // why
//	}, func(err error) { ... })           // told of each failure
//
// Methods of [amqp.Channel] that wait for an answer take no ctx. They end when the session does, at the latest when the
// heartbeats of a silent server are missed; those that send only never wait, since a session's writes go to memory first.
//
// # Publishing
//
//	pub := amqpconn.NewPublisher(conn, amqpconn.PublisherConfig{})
//	err := pub.Publish(ctx, exchange, key, &amqp.Publishing{...}) // nil: confirmed and routed
//	errs := pub.PublishBatch(ctx, []amqpconn.Outgoing{...})       // nil, or one error per message
//
// A Publisher opens its confirming channel at first use and again after each loss. With PublisherConfig.Unconfirmed it does
// not wait for an answer, for events. The errors of a publish are ErrUnroutable, ErrRefused, ErrBlocked, ErrUnavailable,
// ErrAccess, ErrClosed, ErrIndeterminate and ErrMalformed; see there. A message whose bytes may have left is never sent
// again.
package amqpconn
