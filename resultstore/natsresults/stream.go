package natsresults

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// freshness is how long the stream's settings and the server's clock are taken for known.
const freshness = 10 * time.Minute

// staleness is the time after which they are asked for again when nobody answered.
const staleness = time.Minute

// stream is what is known of the stream.
type stream struct {
	direct bool          // any server that has it may answer, and only one has
	ttl    bool          // the server removes each message at its own time
	maxAge time.Duration // the longest that a message is kept. 0: as long as its own time
	ahead  time.Duration // by how much the server's clock is ahead of ours, or a little less
	since  time.Time
}

// now returns the time on the server's clock, or a little earlier.
func (st *stream) now() time.Time { return time.Now().Add(st.ahead) }

// open returns the stream, and makes it if need be. What is known of it holds up nobody when it is no longer fresh: one call
// asks anew, for one try at most.
func (s *Store) open(ctx context.Context) (*stream, error) {
	st := s.stream.Load()
	switch {
	case st == nil:
		return s.find(ctx)
	case time.Since(st.since) < freshness:
		return st, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	default:
		return st, nil
	}
	if now := s.stream.Load(); now != nil && now != st { // another call was faster
		return now, nil
	}
	short, cancel := context.WithTimeout(ctx, s.try)
	defer cancel()
	fresh, err := s.look(short)
	if err == nil {
		return fresh, nil
	}
	again := *st
	again.since = time.Now().Add(staleness - freshness)
	s.stream.CompareAndSwap(st, &again)
	return &again, nil
}

// find waits for the stream that nothing is known of.
func (s *Store) find(ctx context.Context) (*stream, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", natsconn.ErrUnavailable, ctx.Err())
	}
	if st := s.stream.Load(); st != nil { // another call was faster
		return st, nil
	}
	return s.look(ctx)
}

// look asks for the stream, and makes it if need be; s.opening is held.
func (s *Store) look(ctx context.Context) (*stream, error) {
	info, err := s.conn.EnsureStream(ctx, jetstream.StreamConfig{
		Name:              s.names.stream,
		Description:       "results of tasks, one message for each",
		Subjects:          []string{s.names.records + "*"},
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardOld,
		Storage:           jetstream.FileStorage,
		Replicas:          s.cfg.Replicas,
		AllowDirect:       s.cfg.Replicas == 1,
		AllowMsgTTL:       true,
	}, s.merge)
	if err != nil {
		return nil, err
	}
	st := &stream{
		direct: info.Config.AllowDirect && info.Config.Replicas <= 1,
		ttl:    info.Config.AllowMsgTTL,
		maxAge: info.Config.MaxAge,
		since:  time.Now(),
	}
	if !info.TimeStamp.IsZero() {
		st.ahead = info.TimeStamp.Sub(st.since)
	}
	if !st.ttl {
		s.warnOnce.Do(func() {
			s.cfg.Logger.WarnContext(ctx, "the NATS server is older than 2.11 and does not remove each result at its time: all are kept for the same time",
				"stream", s.names.stream, "kept", st.maxAge)
		})
	}
	s.stream.Store(st)
	return st, nil
}

// merge lets the server remove each message at its time. One that cannot has to remove them all at some time.
func (s *Store) merge(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	if have.AllowMsgTTL {
		return have, false
	}
	if have.MaxAge > 0 && s.tooOld.Load() {
		return have, false
	}
	s.tooOld.Store(true) // if this leaves AllowMsgTTL as it was
	have.AllowMsgTTL = true
	if have.MaxAge == 0 {
		have.MaxAge = s.cfg.TTL
	}
	return have, true
}

// lifetime returns how long a record is kept: in whole seconds for the server, and exactly.
func (s *Store) lifetime(ttl time.Duration) (seconds int64, exact time.Duration) {
	if ttl <= 0 {
		ttl = s.cfg.TTL
	}
	ttl = (min(ttl, maxTTL) + time.Millisecond - 1).Truncate(time.Millisecond) // up: a record never ends early
	return int64(math.Ceil(ttl.Seconds())), ttl
}
