package natsbroker

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// features are what the server has made of the stream's configuration. Servers that do not know a setting leave it out in
// silence.
type features struct {
	schedules bool // messages with a time, since 2.12
	atomic    bool // several messages in one step, since 2.12
	ttl       bool // messages that vanish, since 2.11
	rollup    bool // a message may take the place of the one before it
	dedupe    bool // a second message of a subject is refused
	window    time.Duration // for which the server remembers what was published
}

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
		// One message of each subject, and a second one is refused: neither a repeated message nor a full disk can push out
		// what waits.
		MaxMsgsPerSubject:    1,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		Duplicates:           b.cfg.Dedupe,
		AllowRollup:          true,
		AllowDirect:          true,
		AllowMsgTTL:          true,
		AllowMsgSchedules:    true,
		AllowAtomicPublish:   true,
	}
}

// enable adds to the configuration of an existing stream what an older server or program has left out.
func enable(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	change := !have.AllowMsgTTL || !have.AllowMsgSchedules || !have.AllowAtomicPublish
	have.AllowMsgTTL, have.AllowMsgSchedules, have.AllowAtomicPublish, have.AllowRollup = true, true, true, true
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
	if err != nil {
		return nil, err
	}
	if _, change := enable(info.Config); change && b.newerThanStream(info.Config) {
		if info, err = b.conn.EnsureStream(ctx, want, enable); err != nil {
			return nil, err
		}
	}
	have := info.Config
	f := &features{
		schedules: have.AllowMsgSchedules, atomic: have.AllowAtomicPublish, ttl: have.AllowMsgTTL,
		rollup: have.AllowRollup && have.AllowMsgSchedules, // older servers refuse it where new messages are discarded
		dedupe: have.DiscardNewPerSubject && have.MaxMsgsPerSubject == 1, window: have.Duplicates,
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
	differs("discard_new_per_subject", want.DiscardNewPerSubject, have.DiscardNewPerSubject)
	stream := slog.String("stream", b.names.stream)
	if len(attrs) > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the stream exists with other settings and is used as it is", append(attrs, stream)...)
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
