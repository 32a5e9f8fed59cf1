package natsconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// streamRetry is the time between two attempts while a cluster elects a leader.
const streamRetry = 100 * time.Millisecond

// EnsureStream creates the stream that want describes, if it does not exist, waits for the server,
// and returns the configuration that the server uses. Check that configuration: an older server
// silently ignores settings that it does not know.
//
// An existing stream with other settings is left unchanged, unless merge returns true and a
// configuration to which it is updated; merge may be nil. merge is called again with each attempt.
// Many processes may call EnsureStream at the same time if merge returns the same configuration for
// all of them.
//
// Without a server or a leader it tries again until ctx ends; then it returns the last error,
// [ErrUnavailable] or [ErrIndeterminate]. It returns other errors at once, for example that the
// update is refused.
func (c *Conn) EnsureStream(ctx context.Context, want jetstream.StreamConfig, merge func(have jetstream.StreamConfig) (jetstream.StreamConfig, bool)) (*jetstream.StreamInfo, error) {
	for {
		var info *jetstream.StreamInfo
		err := c.Do(ctx, func(ctx context.Context, s *Session) (err error) {
			info, err = ensureStream(ctx, s.JetStream, want, merge)
			return err
		})
		if err == nil {
			return info, nil
		}
		if errors.Is(err, ErrNoStream) { // not a missing stream, which would be created
			err = fmt.Errorf("%w: no server answers; it is starting, or runs without JetStream (-js): %w", ErrUnavailable, err)
		}
		// Creating a stream may be repeated, even if the answer was lost.
		if !isAny(err, ErrUnavailable, ErrIndeterminate) || ctx.Err() != nil || !wake.Sleep(ctx, streamRetry) {
			return nil, fmt.Errorf("nats stream %s: %w", want.Name, err)
		}
	}
}

// ensureStream makes one attempt of [Conn.EnsureStream], of at most 5 s. It returns the error of
// the client library, without a class.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, merge func(have jetstream.StreamConfig) (jetstream.StreamConfig, bool)) (*jetstream.StreamInfo, error) {
	// A short timeout: a leader that has just died never answers.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			st, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	info := st.CachedInfo()
	if merge == nil {
		return info, nil
	}
	cfg, change := merge(info.Config)
	if !change {
		return info, nil
	}
	if st, err = js.UpdateStream(ctx, cfg); err != nil {
		return nil, fmt.Errorf("updating: %w", err)
	}
	return st.CachedInfo(), nil
}
