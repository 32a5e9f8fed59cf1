// Package natsconn keeps a NATS connection alive and gives adapters what they share: sessions, classes of errors, confirmed
// publishing to JetStream, and streams. It knows no port; adapters put a port's error class beside the ones of this package.
//
//	conn, err := natsconn.New(natsconnect.Config{URLs: urls}, "orders", logger)
//
// New does no I/O and starts no goroutine; the first use connects. The connection is made again for as long as the Conn is
// open, with a full-jitter backoff over all URLs and the servers that were learnt from them. Each time it is made it is a
// [Session] with the next generation number.
//
//	sess, err := conn.Session(ctx)     // waits; ErrUnavailable, ErrAccess, ErrClosed
//	nc, err := conn.NATS(ctx)          // the same, the client library's connection
//	js, err := conn.JetStream(ctx)     // the same, the client library's JetStream
//	err = conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error { ... }) // requests; ctx ends with the session too
//	stop := conn.Watch(func(s broker.ConnState, err error) { ... })
//	err = conn.Close(ctx)
//
// The *nats.Conn is the same in all sessions, and its subscriptions are made again by the client library after a loss. What
// is published without a connection fails at once with nats.ErrReconnectBufExceeded: nothing is buffered, so it was surely not
// sent. A request whose answer was lost with the connection is told so by Do at once; the bare library waits out the ctx.
// While the library dials it holds its lock, so its methods may wait for up to DialTimeout without a connection: call Session
// first.
//
// # Publishing to streams
//
//	ack, err := conn.Publish(ctx, &nats.Msg{Subject: ..., Header: ..., Data: ...}) // nil: stored
//	conn.PublishBatch(ctx, pubs)                                                  // Ack and Err of each
//
// Concurrent publishes share trips and one inbox for the answers. A message whose bytes may have left is never sent again.
//
// # Streams
//
//	info, err := conn.EnsureStream(ctx, jetstream.StreamConfig{...}, nil)
//
// creates a stream or finds it, and returns what the server has made of the configuration.
package natsconn
