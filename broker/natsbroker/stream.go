package natsbroker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// features are what the server has made of the stream's configuration. Servers that do not know a setting leave it out in
// silence.
type features struct {
	schedules bool          // messages with a time, since 2.12
	atomic    bool          // several messages in one step, since 2.12
	ttl       bool          // messages that vanish, since 2.11
	window    time.Duration // for which the server remembers what was published
	notes     atomic.Bool   // notes of starts can be stored
}

// maxConsumers is how many consumers a stream of ours may have, each for one level of a queue. A
// stream that names no number gets the server's default, which is 1,000 since NATS 2.12.
const maxConsumers = 100_000

// streamConfig describes the stream of a namespace.
func (b *Broker) streamConfig() jetstream.StreamConfig {
	storage := jetstream.FileStorage
	if b.cfg.Storage == Memory {
		storage = jetstream.MemoryStorage
	}
	return jetstream.StreamConfig{
		Name:        b.names.stream,
		Description: "swarmiji tasks",
		Subjects:    b.names.subjects(),
		Retention:   jetstream.WorkQueuePolicy,
		Storage:     storage,
		Replicas:    b.cfg.Replicas,
		// One message of each subject: a new one takes the place of the old one, and each message says which one it expects. To
		// have a second one refused by the stream (discard new) does not go together with schedules.
		MaxMsgsPerSubject:  1,
		MaxConsumers:       maxConsumers,
		Discard:            jetstream.DiscardOld,
		Duplicates:         b.cfg.Dedupe,
		AllowRollup:        true, // schedules ask for it
		AllowDirect:        true,
		AllowMsgTTL:        true,
		AllowMsgSchedules:  true,
		AllowAtomicPublish: true,
	}
}

// enable adds to the configuration of an existing stream what an older server or program has left out.
func enable(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	change := !have.AllowMsgTTL || !have.AllowMsgSchedules || !have.AllowAtomicPublish
	have.AllowMsgTTL, have.AllowMsgSchedules, have.AllowAtomicPublish, have.AllowRollup = true, true, true, true
	return have, change
}

// allowConsumers gives an existing stream without a limit of its own the limit of a new one.
func allowConsumers(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	change := have.MaxConsumers <= 0
	if change {
		have.MaxConsumers = maxConsumers
	}
	return have, change
}

// ready sees to it that the stream exists, once, and returns what it can do.
func (b *Broker) ready(ctx context.Context) (*features, error) {
	if f := b.features.Load(); f != nil {
		return f, nil
	}
	select {
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return nil, unavailable(ctx)
	case <-b.stop.Done():
		return nil, errClosed()
	}
	if f := b.features.Load(); f != nil {
		return f, nil
	}
	want := b.streamConfig()
	info, err := b.conn.EnsureStream(ctx, want, nil)
	if errors.Is(err, natsconn.ErrTooMany) { // the account may have fewer; then it says how many
		want.MaxConsumers = 0
		info, err = b.conn.EnsureStream(ctx, want, nil)
	}
	if err != nil {
		return nil, err
	}
	if _, change := enable(info.Config); change && b.newerThanStream(info.Config) {
		if info, err = b.conn.EnsureStream(ctx, want, enable); err != nil {
			return nil, err
		}
	}
	if s := b.conn.Live(); want.MaxConsumers > 0 && info.Config.MaxConsumers <= 0 && s != nil && s.AtLeast(2, 12) {
		if more, err := b.conn.EnsureStream(ctx, want, allowConsumers); err == nil { // or the server's limit holds, as it did
			info = more
		}
	}
	if err := b.askTime(ctx); err != nil {
		return nil, err
	}
	have := info.Config
	f := &features{
		schedules: have.AllowMsgSchedules, atomic: have.AllowAtomicPublish, ttl: have.AllowMsgTTL, window: have.Duplicates,
	}
	b.report(ctx, want, have)
	b.features.Store(f)
	return f, nil
}

// newerThanStream reports whether the server may know settings that the stream lacks. An update that an old server would
// ignore is not asked for.
func (b *Broker) newerThanStream(have jetstream.StreamConfig) bool {
	s := b.conn.Live()
	return s != nil && s.AtLeast(2, 12) && !have.AllowMsgSchedules
}

// report says once what is not as configured.
func (b *Broker) report(ctx context.Context, want, have jetstream.StreamConfig) {
	if !b.once("stream") {
		return
	}
	var attrs []slog.Attr
	differs := func(what string, want, have any) {
		if want != have {
			attrs = append(attrs, slog.Group(what, slog.Any("wanted", want), slog.Any("existing", have)))
		}
	}
	differs("replicas", want.Replicas, have.Replicas)
	differs("storage", want.Storage.String(), have.Storage.String())
	differs("dedupe", want.Duplicates, have.Duplicates)
	differs("retention", want.Retention.String(), have.Retention.String())
	differs("max_msgs_per_subject", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	differs("discard", want.Discard.String(), have.Discard.String())
	stream := slog.String("stream", b.names.stream)
	if len(attrs) > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the stream exists with other settings and is used as it is", append(attrs, stream)...)
	}
	if have.MaxMsgs > 0 || have.MaxBytes > 0 || have.MaxAge > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the stream has a limit of size or age, at which the server drops the oldest tasks without a word",
			stream, slog.Int64("max_msgs", have.MaxMsgs), slog.Int64("max_bytes", have.MaxBytes), slog.Duration("max_age", have.MaxAge))
	}
	if !have.AllowMsgSchedules {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the server is too old for schedules, which need 2.12 or later; delayed messages are held by their consumers", stream)
	}
}

// once reports whether it is called for the first time with this key.
func (b *Broker) once(key string) bool {
	_, known := b.warned.LoadOrStore(key, struct{}{})
	return !known
}

// streamGone forgets everything that lay in the stream, so that it is made again.
func (b *Broker) streamGone(ctx context.Context) {
	if b.features.Swap(nil) == nil {
		return
	}
	b.queues.Clear()
	b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the stream is missing, it was deleted or its server is still starting; it is looked for and made again", slog.String("stream", b.names.stream))
}
