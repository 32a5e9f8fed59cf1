package natsconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// streamRetry is the pause before a stream is asked for again, while a cluster elects who answers.
const streamRetry = 100 * time.Millisecond

// EnsureStream creates the stream that want describes and returns what the server has made of it. The caller must look at
// the answer: servers that do not know a setting leave it out in silence. A stream of the name that exists with other settings
// is left as it is, unless merge (which may be nil) answers with a configuration to update it to. It may be called by many
// processes at once, as long as merge does not depend on who asks. While a cluster has no leader it is tried again until ctx
// ends.
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
		if errors.Is(err, ErrNoStream) { // one that is missing is made
			err = fmt.Errorf("%w: nobody answers; the server is starting, or runs without JetStream (-js): %w", ErrUnavailable, err)
		}
		// A creation may be repeated, also one whose answer was lost.
		if !isAny(err, ErrUnavailable, ErrIndeterminate) || ctx.Err() != nil || !wake.Sleep(ctx, streamRetry) {
			return nil, fmt.Errorf("nats stream %s: %w", want.Name, err)
		}
	}
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, merge func(have jetstream.StreamConfig) (jetstream.StreamConfig, bool)) (*jetstream.StreamInfo, error) {
	// A short bound for each question: a request to a leader that has just died is never answered.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster
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
