package natsschedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	ahead     = 1000 // buffered messages that were not yet applied
	idle      = 30 * time.Second
	heartbeat = 5 * time.Second
	// stuck limits how long the cache may lag behind the stream. Then it is read again from the start.
	stuck = 5 * time.Second
)

// start starts the goroutine of follow, unless it runs or the store is closed, and returns at once.
// It takes s.mu.
func (s *Store) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.following && !s.closed {
		s.following = true
		s.running.Go(s.follow)
	}
}

// follow keeps the cache, the copy of the schedule in memory, up to date. It blocks until the store
// is closed. After an error it marks the cache as stale, waits, connects again and reads the whole
// stream again. If the stream was deleted, it creates it again. It takes s.mu, but not while it
// waits.
func (s *Store) follow() {
	for attempt := 0; s.ctx.Err() == nil; attempt++ {
		began := time.Now()
		err := s.open(s.ctx)
		if err == nil {
			err = s.conn.Do(s.ctx, s.followStream)
		}
		s.markStale()
		if errors.Is(err, natsconn.ErrNoStream) {
			s.opened.Store(false) // The stream was deleted; create it again.
		}
		if time.Since(began) > idle {
			attempt = 0
		}
		wake.Sleep(s.ctx, s.backoff.Interval(min(attempt, 4)))
	}
}

// open creates the stream if it does not exist; an existing one keeps its settings. It notes in
// s.ttl whether the server can expire messages. It blocks until the server answers or ctx ends, and
// returns their error. After a success it does nothing, until follow or sync finds the stream
// deleted.
func (s *Store) open(ctx context.Context) error {
	if s.opened.Load() {
		return nil
	}
	info, err := s.conn.EnsureStream(ctx, jetstream.StreamConfig{
		Name:              s.stream,
		Description:       "a schedule, one message for each entry",
		Subjects:          []string{s.prefix + "*"},
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardOld,
		Storage:           jetstream.FileStorage,
		Replicas:          s.replicas,
		AllowMsgTTL:       true,
	}, nil)
	if err != nil {
		return err
	}
	s.ttl.Store(info.Config.AllowMsgTTL)
	s.opened.Store(true)
	return nil
}

// markStale notes that the cache is no longer updated; calls then wait until it is complete again.
// It takes s.mu.
func (s *Store) markStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = false
}

// followStream reads the whole schedule into a new cache, replaces the old one by it, and then
// applies all changes. For this it makes a consumer on the server, in memory, which ends after idle
// without requests. It blocks until ctx or the connection ends, s.reload is called, or a message is
// missing, and then returns an error, never nil. A message that is not an entry is skipped. It sets
// s.reload. It takes s.mu, but not while it waits.
func (s *Store) followStream(ctx context.Context, sess *natsconn.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.reload = cancel
	s.mu.Unlock()
	st, err := sess.JetStream.Stream(ctx, s.stream)
	if err != nil {
		return err
	}
	info := st.CachedInfo()
	c, err := st.CreateConsumer(ctx, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: s.prefix + "*",
		MemoryStorage: true, Replicas: 1, InactiveThreshold: idle,
	})
	if err != nil {
		return err
	}
	m, err := c.Messages(jetstream.PullMaxMessages(ahead), jetstream.PullExpiry(idle), jetstream.PullHeartbeat(heartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer m.Stop()
	fresh := newTable()
	seq := info.State.LastSeq
	if c.CachedInfo().NumPending == 0 {
		s.replaceCache(fresh, seq, info.Created)
		fresh = nil
	}
	for last := uint64(0); ; last++ {
		msg, err := m.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != last+1 {
			return fmt.Errorf("message %d of a consumer came after %d", meta.Sequence.Consumer, last)
		}
		apply := decodeAny(msg.Headers(), msg.Data(), meta.Sequence.Stream)
		if fresh == nil {
			s.applyChange(apply, meta.Sequence.Stream)
			continue
		}
		apply(fresh)
		seq = max(seq, meta.Sequence.Stream)
		if meta.NumPending == 0 {
			s.replaceCache(fresh, seq, info.Created)
			fresh = nil
		}
	}
}

// replaceCache replaces the cache by a complete one of the stream that was made at created. seq is
// the last sequence that it holds. It wakes waiting calls and then, without s.mu, the watchers. It
// takes s.mu.
func (s *Store) replaceCache(t *table, seq uint64, created time.Time) {
	s.mu.Lock()
	s.cache, s.seq, s.created, s.fresh = t, seq, created, true
	s.notifyWaiters()
	s.mu.Unlock()
	s.wake()
}

// decodeAny decodes a message of the stream. The result applies it to a table, and reports whether
// something is due earlier. It does nothing for a message that is neither an entry nor a group.
func decodeAny(h nats.Header, data []byte, seq uint64) func(*table) bool {
	if h.Get(headerGroup) != "" {
		g, err := decodeGroup(data, seq)
		return func(t *table) bool {
			if err == nil {
				t.applyGroup(g)
			}
			return false
		}
	}
	r, err := decode(h, data)
	return func(t *table) bool { return err == nil && t.apply(r, seq, true) }
}

// applyChange applies the message of the stream with the sequence seq to the cache, and wakes
// waiting calls. If something is due earlier, it then wakes the watchers, without s.mu. It takes
// s.mu.
func (s *Store) applyChange(apply func(*table) bool, seq uint64) {
	s.mu.Lock()
	sooner := apply(s.cache)
	s.seq = max(s.seq, seq)
	s.notifyWaiters()
	s.mu.Unlock()
	if sooner {
		s.wake()
	}
}

// notifyWaiters wakes the calls that wait for the cache. Call it with s.mu held.
func (s *Store) notifyWaiters() {
	if s.waiting {
		close(s.changed)
		s.changed, s.waiting = make(chan struct{}), false
	}
}

// status is the part of the server's stream information that sync uses.
type status struct {
	Created time.Time `json:"created"`
	Time    time.Time `json:"ts"`
	State   struct {
		LastSeq uint64 `json:"last_seq"`
	} `json:"state"`
}

// sync waits until the cache has all changes that the stream has now, and returns the server's time
// in milliseconds. If it returns nil as error, s.mu is held; the caller must unlock it.
//
// It starts follow, and creates the stream if it does not exist or was deleted. If the server sends
// no time, it returns the time of this process. It blocks until the server answers, ctx ends or the
// store is closed. Returns natsconn.ErrUnavailable if ctx has ended, errors of open, of the server
// and of awaitCache.
func (s *Store) sync(ctx context.Context) (int64, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, fmt.Errorf("%w: %w", natsconn.ErrUnavailable, err)
	}
	s.start()
	for {
		var st status
		if err := s.open(ctx); err != nil {
			return 0, err
		}
		err := s.conn.API(ctx, "STREAM.INFO."+s.stream, struct{}{}, &st)
		if errors.Is(err, natsconn.ErrNoStream) && ctx.Err() == nil && s.opened.CompareAndSwap(true, false) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if st.Time.IsZero() {
			st.Time = time.Now()
		}
		if err := s.awaitCache(ctx, &st); err != nil {
			return 0, err
		}
		return st.Time.UnixMilli(), nil
	}
}

// awaitCache waits until the cache has all changes of st. If it returns nil, s.mu is held; the
// caller must unlock it. It does not hold s.mu while it waits or after an error. If the cache lags
// behind for longer than stuck, or the stream is a new one, the stream is read again from the
// start.
//
// Returns natsconn.ErrClosed after Close, and natsconn.ErrUnavailable if ctx ends.
func (s *Store) awaitCache(ctx context.Context, st *status) error {
	lag := time.NewTimer(stuck)
	defer lag.Stop()
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return natsconn.ErrClosed
		case s.fresh && !s.created.Equal(st.Created):
			s.fresh = false // a new stream with the same name
			s.reload()
		case s.fresh && s.seq >= st.State.LastSeq:
			return nil
		}
		s.waiting = true
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", natsconn.ErrUnavailable, context.Cause(ctx))
		case <-lag.C:
			lag.Reset(stuck)
			s.mu.Lock()
			if s.fresh {
				s.fresh = false
				s.reload()
			}
			s.mu.Unlock()
		}
	}
}
