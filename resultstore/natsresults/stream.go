package natsresults

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// freshness is the time for which the settings of the stream and the offset of the server's clock
// stay valid.
const freshness = 10 * time.Minute

// staleness is the delay before the next request for them if the last one had no answer.
const staleness = time.Minute

// stream holds the known settings of the JetStream stream.
type stream struct {
	direct bool          // the only server that has the stream may answer reads directly
	ttl    bool          // the server removes each message at its own expiry
	maxAge time.Duration // longest retention of any message; 0: no limit
	ahead  time.Duration // offset of the server's clock to the local one, or slightly less
	since  time.Time
}

// now returns the time on the server's clock, or slightly earlier.
func (st *stream) now() time.Time { return time.Now().Add(st.ahead) }

// open returns the settings of the stream. If they are unknown it waits for find and returns its
// result. If they are older than freshness, one caller reads them again and waits for at most
// s.try; all others get the old settings at once. If that read fails, open returns the old settings
// and no error, and the next read happens after staleness.
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
	fresh, err := s.refresh(short)
	if err == nil {
		return fresh, nil
	}
	again := *st
	again.since = time.Now().Add(staleness - freshness)
	s.stream.CompareAndSwap(st, &again)
	return &again, nil
}

// find waits for s.opening and then reads the settings of the stream, or makes it. If another call
// has read them meanwhile it returns those. Returns ErrUnavailable when ctx ends, and the errors of
// refresh.
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
	return s.refresh(ctx)
}

// refresh reads the settings of the stream and stores them in s.stream. It makes a missing stream,
// and changes the settings of an existing one as merge says. It waits for the server. It logs a
// warning once if the server is too old for message TTLs. Returns the errors of EnsureStream, and
// stores nothing then. Call it with s.opening held.
func (s *Store) refresh(ctx context.Context) (*stream, error) {
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
			s.cfg.Logger.WarnContext(ctx, "the NATS server is older than 2.11 and cannot expire each result separately: it keeps all results for the same time; upgrade the server",
				"stream", s.names.stream, "kept", st.maxAge)
		})
	}
	s.stream.Store(st)
	return st, nil
}

// merge returns the configuration that the stream should get, and whether that differs from have,
// its present configuration. It does not differ if AllowMsgTTL is on, or if the server has ignored
// AllowMsgTTL before and MaxAge is set.
//
// Otherwise merge switches AllowMsgTTL on and sets s.tooOld: if a later call finds AllowMsgTTL off,
// the server has ignored it. It also sets a missing MaxAge to Config.TTL, because an older server
// ignores AllowMsgTTL.
func (s *Store) merge(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	if have.AllowMsgTTL {
		return have, false
	}
	if have.MaxAge > 0 && s.tooOld.Load() {
		return have, false
	}
	s.tooOld.Store(true) // the server is too old if it leaves AllowMsgTTL unset
	have.AllowMsgTTL = true
	if have.MaxAge == 0 {
		have.MaxAge = s.cfg.TTL
	}
	return have, true
}

// lifetime returns the retention of a record: in whole seconds for the server, and exact, in whole
// milliseconds. Both are rounded up. 0 or less selects Config.TTL. More than maxTTL, 100 years,
// counts as maxTTL.
func (s *Store) lifetime(ttl time.Duration) (seconds int64, exact time.Duration) {
	if ttl <= 0 {
		ttl = s.cfg.TTL
	}
	// rounded up: a record never expires early
	ttl = (min(ttl, maxTTL) + time.Millisecond - 1).Truncate(time.Millisecond)
	return int64(math.Ceil(ttl.Seconds())), ttl
}
