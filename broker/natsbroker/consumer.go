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
	// maxWaiting is how many requests for messages may wait at one consumer.
	maxWaiting = 16384
	// consumerRetry is the pause before a consumer is asked for again.
	consumerRetry = 100 * time.Millisecond
	consumerTry   = 5 * time.Second
)

// consumerConfig describes the consumer of a queue's level. Nothing is limited: the prefetch bounds what is handed out, and
// poison is buried by whoever counts the deliveries.
func (b *Broker) consumerConfig(q *queue, level int, lease time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       b.names.consumer(q.name, level),
		FilterSubject: q.work[level] + "*",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       lease,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    maxWaiting,
	}
}

// ensureConsumer finds or makes the consumer of a level, and makes its lease at least the given one. It goes on until ctx ends.
func (b *Broker) ensureConsumer(ctx context.Context, q *queue, level int, lease time.Duration) (*jetstream.ConsumerInfo, error) {
	for {
		var info *jetstream.ConsumerInfo
		err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) (err error) {
			ctx, cancel := context.WithTimeout(ctx, consumerTry)
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
			b.streamGone(ctx)
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

func (b *Broker) findConsumer(ctx context.Context, js jetstream.JetStream, q *queue, level int, lease time.Duration) (*jetstream.ConsumerInfo, error) {
	want := b.consumerConfig(q, level, lease)
	c, err := js.Consumer(ctx, b.names.stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = js.CreateConsumer(ctx, b.names.stream, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // somebody was faster
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

// tellTooMany says once that a consumer that was deleted cannot be made again.
func (b *Broker) tellTooMany(ctx context.Context, q *queue, err error) {
	if b.once("consumers " + q.name) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelError, "nats: a consumer was deleted and cannot be made again, the stream has as many as it may have; nothing is consumed from the queue meanwhile",
			slog.String("queue", q.name), slog.String("stream", b.names.stream), slog.Any("error", err))
	}
}

// consumerGone says that a consumer was deleted.
func (b *Broker) consumerGone(ctx context.Context, q *queue, level int) {
	b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: a consumer was deleted; it is made again, and what it had handed out is handed out again",
		slog.String("queue", q.name), slog.String("consumer", b.names.consumer(q.name, level)))
}
