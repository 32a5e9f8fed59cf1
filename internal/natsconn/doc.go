// Package natsconn keeps a NATS connection alive and is the common base of the NATS adapters. It
// provides sessions, error classes, confirmed publishing to JetStream, and streams. It depends on
// no port; adapters add the error of their port to those of this package.
//
//	conn, err := natsconn.New(natsconnect.Config{URLs: urls}, "orders", logger)
//
// New does no I/O and starts no goroutine; the first use connects. A lost connection is made again
// until Close, with a full-jitter backoff over all URLs and the servers learned from them. Each new
// connection is a [Session] with the next generation number.
//
//	sess, err := conn.Session(ctx)     // waits; ErrUnavailable, ErrAccess, ErrClosed
//	nc, err := conn.NATS(ctx)          // the same, the client library's connection
//	js, err := conn.JetStream(ctx)     // the same, the client library's JetStream
//	err = conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error { ... })
//	stop := conn.Watch(func(s broker.ConnState, err error) { ... })
//	err = conn.Close(ctx)
//
// All sessions use the same *nats.Conn, and the client library makes its subscriptions again after
// a loss. Publishing without a connection fails at once with nats.ErrReconnectBufExceeded: the
// library buffers nothing, so the message was certainly not sent. Do ends a request at once when
// its answer is lost with the connection; the bare library waits until ctx ends. The library holds
// its lock while it dials, so its methods may block for up to DialTimeout without a connection.
// Call Session first.
//
// # Publishing to streams
//
//	ack, err := conn.Publish(ctx, &nats.Msg{Subject: ..., Header: ..., Data: ...}) // nil: stored
//	conn.PublishBatch(ctx, pubs)                                      // sets Ack and Err of each
//
// Concurrent publishes share round trips and one inbox for the answers. A message that may have
// been sent is never sent again.
//
// # Streams
//
//	info, err := conn.EnsureStream(ctx, jetstream.StreamConfig{...}, nil)
//
// creates or finds a stream and returns the configuration that the server uses.
package natsconn
