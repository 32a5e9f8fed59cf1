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

// features says which settings the server has applied to the stream. Servers ignore settings that
// they do not know.
type features struct {
	schedules bool          // delayed messages, since 2.12
	atomic    bool          // several messages in one atomic step, since 2.12
	ttl       bool          // messages that expire, since 2.11
	window    time.Duration // how long the server remembers published messages
	notes     atomic.Bool   // notes of starts can be stored
}

// maxConsumers limits the consumers of the stream, one for each level of a queue. A stream without
// a number has the server's default, which is 1,000 since NATS 2.12.
const maxConsumers = 100_000

// streamConfig returns the configuration with which the stream of the namespace is created: all
// its subjects, the settings of Config, and all features. The package comment describes it.
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
		// One message for each subject: a new message replaces the old one, and each message names its
		// expected predecessor. The alternative, that the stream refuses a second message (discard new),
		// does not work with schedules.
		MaxMsgsPerSubject:  1,
		MaxConsumers:       maxConsumers,
		Discard:            jetstream.DiscardOld,
		Duplicates:         b.cfg.Dedupe,
		AllowRollup:        true, // schedules need it
		AllowDirect:        true,
		AllowMsgTTL:        true,
		AllowMsgSchedules:  true,
		AllowAtomicPublish: true,
	}
}

// enableFeatures returns the configuration of an existing stream with all features switched on:
// messages that expire, schedules, atomic batches, and rollups, which schedules need. It reports
// whether one of the first three was off.
func enableFeatures(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	change := !have.AllowMsgTTL || !have.AllowMsgSchedules || !have.AllowAtomicPublish
	have.AllowMsgTTL, have.AllowMsgSchedules, have.AllowAtomicPublish, have.AllowRollup = true, true, true, true
	return have, change
}

// allowConsumers sets the limit maxConsumers in an existing stream's configuration that has no
// limit of consumers. It returns the configuration, and whether it has changed.
func allowConsumers(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	change := have.MaxConsumers <= 0
	if change {
		have.MaxConsumers = maxConsumers
	}
	return have, change
}

// ensureStream creates the stream if it does not exist, and returns the features that it has. It
// waits for the server at the first call, and after the stream was found missing; otherwise it
// returns the known features.
//
// An existing stream keeps its settings, except that missing features and a missing limit of
// consumers are set if the server is new enough. Differences are logged once. It also asks for the
// server's time. Concurrent callers wait for one of them. Returns ErrUnavailable if ctx ends first,
// ErrClosed after Close, and the errors of the server.
func (b *Broker) ensureStream(ctx context.Context) (*features, error) {
	if f := b.features.Load(); f != nil {
		return f, nil
	}
	select {
	case b.creating <- struct{}{}:
		defer func() { <-b.creating }()
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
	// the account may allow fewer consumers and name the number
	if errors.Is(err, natsconn.ErrTooMany) {
		want.MaxConsumers = 0
		info, err = b.conn.EnsureStream(ctx, want, nil)
	}
	if err != nil {
		return nil, err
	}
	if _, change := enableFeatures(info.Config); change && b.newerThanStream(info.Config) {
		if info, err = b.conn.EnsureStream(ctx, want, enableFeatures); err != nil {
			return nil, err
		}
	}
	if s := b.conn.Live(); want.MaxConsumers > 0 && info.Config.MaxConsumers <= 0 && s != nil && s.AtLeast(2, 12) {
		// after an error the server's limit stays valid
		if more, err := b.conn.EnsureStream(ctx, want, allowConsumers); err == nil {
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
	b.logDifferences(ctx, want, have)
	b.features.Store(f)
	return f, nil
}

// newerThanStream reports whether the server may know settings that the stream lacks: it has
// version 2.12 or later, and the stream allows no schedules. It prevents an update that an old
// server would ignore. Without a connection it returns false.
func (b *Broker) newerThanStream(have jetstream.StreamConfig) bool {
	s := b.conn.Live()
	return s != nil && s.AtLeast(2, 12) && !have.AllowMsgSchedules
}

// logDifferences logs, once per Broker, the settings of the existing stream that differ from the
// wanted ones or may lose tasks. It also logs that the server is too old for schedules. It changes
// nothing.
func (b *Broker) logDifferences(ctx context.Context, want, have jetstream.StreamConfig) {
	if !b.firstTime("stream") {
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
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the stream has a limit of size or age, at which the server drops the oldest tasks without a report",
			stream, slog.Int64("max_msgs", have.MaxMsgs), slog.Int64("max_bytes", have.MaxBytes), slog.Duration("max_age", have.MaxAge))
	}
	if !have.AllowMsgSchedules {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the server is too old for schedules, which need version 2.12 or later; consumers hold delayed messages", stream)
	}
}

// firstTime returns true at the first call with this key, and false at later calls.
func (b *Broker) firstTime(key string) bool {
	_, known := b.warned.LoadOrStore(key, struct{}{})
	return !known
}

// forgetStream sets b.features to nil and clears b.queues after the stream was found missing. So
// the next call finds or creates the stream, and reads each queue's record again. It logs a
// warning, once for each loss. It does nothing if b.features is nil already. It sends nothing.
func (b *Broker) forgetStream(ctx context.Context) {
	if b.features.Swap(nil) == nil {
		return
	}
	b.queues.Clear()
	b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the stream is missing, because it was deleted or its server is still starting; finding or creating it", slog.String("stream", b.names.stream))
}
