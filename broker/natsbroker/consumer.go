package natsbroker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/natsconn"
)

const (
	// maxWaiting limits the requests for messages that wait at one consumer.
	maxWaiting = 16384
	// consumerRetry is the pause before another request for a consumer.
	consumerRetry   = 100 * time.Millisecond
	consumerTimeout = 5 * time.Second
)

// consumerConfig returns the configuration of the server's consumer for a level or lane of a queue,
// by its index in q.work. It sets no limits. The prefetch limits the deliveries, and the consuming
// process counts them to dead-letter a poison message.
func (b *Broker) consumerConfig(q *queue, level int, lease time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       q.consumers[level],
		FilterSubject: q.work[level] + "*",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       lease,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    maxWaiting,
	}
}

// ensureConsumer creates the consumer of a level on the server if it does not exist, and returns
// its state. It also extends its lease to lease, or shortens it if no other process uses the
// consumer. If the stream is missing it creates the stream and the queue again. It waits for the
// server.
//
// After ErrUnavailable and ErrIndeterminate of the connection it tries again. When ctx or the
// Broker ends it returns the error of the last attempt. It returns other errors at once.
func (b *Broker) ensureConsumer(ctx context.Context, q *queue, level int, lease time.Duration) (*jetstream.ConsumerInfo, error) {
	for {
		var info *jetstream.ConsumerInfo
		err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) (err error) {
			ctx, cancel := context.WithTimeout(ctx, consumerTimeout)
			defer cancel()
			info, err = b.findConsumer(ctx, s.JetStream, q, level, lease)
			return err
		})
		switch {
		case err == nil:
			return info, nil
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, natsconn.ErrNoStream):
			b.forgetStream(ctx)
			if _, err := b.queue(ctx, q.name); err != nil {
				return nil, err
			}
		case !errors.Is(err, natsconn.ErrUnavailable) && !errors.Is(err, natsconn.ErrIndeterminate):
			return nil, err
		}
		if !b.pause(ctx, consumerRetry) {
			return nil, err
		}
	}
}

// findConsumer finds or creates the consumer of a level and adjusts its lease, with one attempt,
// and waits for the server. A lease that is longer than lease is kept while messages or requests
// of the consumer are pending. It returns the consumer's state, or the first error of the server.
func (b *Broker) findConsumer(ctx context.Context, js jetstream.JetStream, q *queue, level int, lease time.Duration) (*jetstream.ConsumerInfo, error) {
	want := b.consumerConfig(q, level, lease)
	c, err := js.Consumer(ctx, b.names.stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = js.CreateConsumer(ctx, b.names.stream, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process was faster
			c, err = js.Consumer(ctx, b.names.stream, want.Durable)
		}
	}
	if err != nil {
		return nil, err
	}
	info := c.CachedInfo()
	have := info.Config
	idle := info.NumWaiting == 0 && info.NumAckPending == 0
	if have.AckWait == lease || have.AckWait > lease && !idle {
		return info, nil
	}
	have.AckWait = lease
	if c, err = js.UpdateConsumer(ctx, b.names.stream, have); err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// logTooMany logs an error, once per queue, that a deleted consumer cannot be created again,
// because the stream has too many.
func (b *Broker) logTooMany(ctx context.Context, q *queue, err error) {
	if b.firstTime("consumers " + q.name) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelError, "nats: a consumer was deleted and cannot be created again, because the stream has too many; nothing is consumed from the queue; raise the limit or delete unused consumers",
			slog.String("queue", q.name), slog.String("stream", b.names.stream), slog.Any("error", err))
	}
}

// logConsumerGone logs that the consumer of a level was deleted.
func (b *Broker) logConsumerGone(ctx context.Context, q *queue, level int) {
	b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: a consumer was deleted; creating it again; its unsettled messages are delivered again",
		slog.String("queue", q.name), slog.String("consumer", q.consumers[level]))
}
