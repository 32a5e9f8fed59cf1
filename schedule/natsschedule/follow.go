package natsschedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	ahead     = 1000 // messages that wait in this process to be taken in
	idle      = 30 * time.Second
	heartbeat = 5 * time.Second
	// stuck is how long a copy may lag behind before it is made anew.
	stuck = 5 * time.Second
)

// start begins to follow the stream.
func (s *Store) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.following && !s.closed {
		s.following = true
		s.running.Go(s.follow)
	}
}

// follow keeps the copy until the store is closed, and makes it anew when the connection was lost.
func (s *Store) follow() {
	for attempt := 0; s.ctx.Err() == nil; attempt++ {
		began := time.Now()
		err := s.open(s.ctx)
		if err == nil {
			err = s.conn.Do(s.ctx, s.copyAll)
		}
		s.lose()
		if errors.Is(err, natsconn.ErrNoStream) {
			s.opened.Store(false) // somebody has deleted it
		}
		if time.Since(began) > idle {
			attempt = 0
		}
		wake.Sleep(s.ctx, s.backoff.Interval(min(attempt, 4)))
	}
}

// open makes the stream if need be.
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

// lose says that the copy is not kept any more.
func (s *Store) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
}

// copyAll reads the schedule, and then all changes, until ctx or the connection ends, or something is missing.
func (s *Store) copyAll(ctx context.Context, sess *natsconn.Session) error {
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
		s.publish(fresh, seq, info.Created)
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
		r, err := decode(msg.Headers(), msg.Data())
		if fresh == nil {
			s.take(r, err, meta.Sequence.Stream)
			continue
		}
		if err == nil {
			fresh.apply(r, meta.Sequence.Stream, true)
		}
		seq = max(seq, meta.Sequence.Stream)
		if meta.NumPending == 0 {
			s.publish(fresh, seq, info.Created)
			fresh = nil
		}
	}
}

// publish puts a complete copy in place of the one before.
func (s *Store) publish(t *table, seq uint64, created time.Time) {
	s.mu.Lock()
	s.copy, s.seq, s.created, s.ready = t, seq, created, true
	s.changed()
	s.mu.Unlock()
	s.wake()
}

// take takes a change into the copy. What is no entry counts as seen.
func (s *Store) take(r *record, err error, seq uint64) {
	s.mu.Lock()
	sooner := err == nil && s.copy.apply(r, seq, true)
	s.seq = max(s.seq, seq)
	s.changed()
	s.mu.Unlock()
	if sooner {
		s.wake()
	}
}

// changed wakes those who wait for the copy; s.mu is held.
func (s *Store) changed() {
	if s.waiting {
		close(s.bump)
		s.bump, s.waiting = make(chan struct{}), false
	}
}

// status is what the server says of the stream.
type status struct {
	Created time.Time `json:"created"`
	Time    time.Time `json:"ts"`
	State   struct {
		LastSeq uint64 `json:"last_seq"`
	} `json:"state"`
}

// sync waits until the copy has all that the stream has now, and returns the server's time. s.mu is held then, if there is no error.
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
		if err := s.await(ctx, &st); err != nil {
			return 0, err
		}
		return st.Time.UnixMilli(), nil
	}
}

// await waits for the copy; s.mu is held when it returns nil.
func (s *Store) await(ctx context.Context, st *status) error {
	lag := time.NewTimer(stuck)
	defer lag.Stop()
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return natsconn.ErrClosed
		case s.ready && !s.created.Equal(st.Created):
			s.ready = false // another stream of the name
			s.reload()
		case s.ready && s.seq >= st.State.LastSeq:
			return nil
		}
		s.waiting = true
		bump := s.bump
		s.mu.Unlock()
		select {
		case <-bump:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", natsconn.ErrUnavailable, context.Cause(ctx))
		case <-lag.C:
			lag.Reset(stuck)
			s.mu.Lock()
			if s.ready {
				s.ready = false
				s.reload()
			}
			s.mu.Unlock()
		}
	}
}
