package natsevents

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// prefetch is the number of events that the server sends before they are read.
	prefetch = 500
	// idleTimeout is the time after which the server removes a consumer without a reader. The stream
	// then makes another one.
	idleTimeout = 30 * time.Second
	// heartbeat is the interval of the server's heartbeats while no events arrive. If two are missing,
	// the stream makes a new consumer.
	heartbeat = 5 * time.Second
	// createTimeout limits the wait for the answer to one request for a consumer; a leader that has
	// just died never answers.
	createTimeout = 5 * time.Second
	// retryDelay is the time before the next attempt to make a consumer.
	retryDelay = 100 * time.Millisecond
)

// replay is a stream of kept events. Receive decodes them.
type replay struct {
	bus    *Bus
	filter events.Filter
	since  time.Time
	ctx    context.Context // ends with the stream
	stop   context.CancelFunc
	missed atomic.Uint64

	reading chan struct{} // held by the Receive that reads; it guards the fields below
	created time.Time     // creation time of the JetStream stream to which next belongs
	next    uint64        // sequence of the next message; 0: not known yet
	source  *source       // nil: not made yet, or lost
	buffer  []events.Event
}

// source is a consumer on one session.
type source struct {
	jetstream.MessagesContext
	last     uint64             // consumer sequence of the last message
	messages chan jetstream.Msg // closed when no more messages arrive
	unused   chan struct{}      // closed when the replay does not use the source any more
}

// read sends each arriving message to s.messages until the source ends, s.unused is closed or ctx
// ends, and closes s.messages then. It drops the error. The client library checks the server's
// heartbeats only within one call of Next. read therefore runs longer than a Receive whose ctx ends
// early.
func (s *source) read(ctx context.Context) {
	defer close(s.messages)
	for {
		m, err := s.Next(jetstream.NextContext(ctx))
		if err != nil {
			return
		}
		select {
		case s.messages <- m:
		case <-s.unused:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Replay implements [events.Retainer]: it returns a stream of kept events from since on, and then
// of new ones. It makes the JetStream stream if that does not exist, changes its limits to
// Config.Retain, and blocks until its consumer exists. It fails like [Bus.Subscribe].
//
// A slow stream that comes to a removed event continues with the oldest kept one and counts the
// missed events. Returns ErrNotRetained if the bus keeps no events, ErrClosed after Close. It takes
// b.mu, but not while it waits.
func (b *Bus) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.isClosed() {
		return nil, events.ErrClosed
	}
	if b.keeper == nil {
		return nil, events.ErrNotRetained
	}
	f.Types = slices.Clone(f.Types)
	r := &replay{bus: b, filter: f, since: since, reading: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	err := r.connect(ctx)
	if err == nil && !b.register(r) {
		err = natsconn.ErrClosed
	}
	if err != nil {
		r.end()
		return nil, failure("replay", err)
	}
	return r, nil
}

// connect makes the stream if it does not exist, and a consumer that begins at the next message of
// the stream. It waits for a server until ctx ends. After a temporary failure to make the consumer
// it tries again every retryDelay. Returns the error of ensureStream, another error of consume, or
// the last one if ctx ends. Call it with r.reading held.
func (r *replay) connect(ctx context.Context) error {
	for {
		info, err := r.bus.keeper.ensureStream(ctx)
		if err != nil {
			return err
		}
		r.adjustNext(info)
		err = r.consume(ctx)
		if !temporary(err) || !wake.Sleep(ctx, retryDelay) {
			return err
		}
	}
}

// temporary reports whether making a consumer that failed with err may succeed later: without an
// answer, a stream or a connection, for example while a cluster elects a leader. It returns false
// for nil.
func temporary(err error) bool {
	return errors.Is(err, natsconn.ErrIndeterminate) || errors.Is(err, natsconn.ErrNoStream) || errors.Is(err, natsconn.ErrUnavailable)
}

// adjustNext corrects r.next, the next sequence, for the state of the stream, and stores the
// stream's creation time in r.created. Call it with r.reading held.
//
//   - The creation time differs: the stream is a new one with the old name, and r.next is 1.
//   - The stream has lost its last messages with its server: r.next is the sequence after its last.
//   - r.next is 0, not known: it stays 0, and consume sets it.
func (r *replay) adjustNext(info *jetstream.StreamInfo) {
	switch {
	case r.next == 0: // consume reads it from the consumer
	case !info.Created.Equal(r.created):
		r.next = 1
	default:
		r.next = min(r.next, info.State.LastSeq+1)
	}
	r.created = info.Created
}

// consume makes a consumer on the current session, stores it in r.source and starts its goroutines
// (watch). It begins at r.next. If that is 0 it begins at r.since, and sets r.next to the first
// sequence. It waits for the server. It returns an error if the server refuses or does not answer
// within createTimeout, and ErrClosed after Close of the bus. Call it with r.reading held.
func (r *replay) consume(ctx context.Context) error {
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: idleTimeout,
	}
	switch {
	case r.next > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.next
	case r.since.IsZero():
		cfg.DeliverPolicy = jetstream.DeliverAllPolicy
	default:
		since := r.since.UTC()
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	return r.bus.conn.Do(ctx, func(ctx context.Context, sess *natsconn.Session) error {
		ctx, cancel := context.WithTimeout(ctx, createTimeout)
		defer cancel()
		c, err := sess.JetStream.CreateConsumer(ctx, r.bus.names.stream, cfg)
		if err != nil {
			return err
		}
		info := c.CachedInfo()
		if r.next == 0 {
			r.next = info.Delivered.Stream + 1
		}
		m, err := c.Messages(jetstream.PullMaxMessages(prefetch), jetstream.PullExpiry(idleTimeout), jetstream.PullHeartbeat(heartbeat),
			jetstream.WithMessagesErrOnMissingHeartbeat(true))
		if err != nil {
			return err
		}
		r.source = &source{MessagesContext: m, messages: make(chan jetstream.Msg), unused: make(chan struct{})}
		return r.watch(r.source, sess, info.Name)
	})
}

// watch starts a goroutine that reads from s. A second one stops s and asks the server to remove
// its consumer when s.unused is closed, or the session or the replay ends. After Close of the bus
// watch stops s and returns ErrClosed. It takes bus.mu.
func (r *replay) watch(s *source, sess *natsconn.Session, consumer string) error {
	watching := r.bus.spawn(func() { s.read(r.ctx) }) && r.bus.spawn(func() {
		select {
		case <-s.unused:
		case <-r.ctx.Done():
		case <-sess.Done():
		}
		s.Stop()
		// The server would remove the consumer later by itself.
		_ = sess.NATS.Publish(r.bus.names.remove(consumer), nil)
	})
	if !watching {
		s.Stop()
		return natsconn.ErrClosed
	}
	return nil
}

// Retention implements [events.RetentionTeller]: it returns Config.Retain with its defaults.
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription]: it waits for the next event that matches and returns
// it. One call reads at a time, and others wait for it. After a lost connection or consumer, and
// after every error of the server, it makes a new consumer until ctx ends. Returns ctx's error when
// ctx ends and ErrClosed after Close of the subscription or the bus.
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	select {
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	default:
	}
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	case <-ctx.Done():
		return events.Event{}, ctx.Err()
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	for len(r.buffer) == 0 {
		err := r.fill(both)
		switch {
		case r.ctx.Err() != nil || errors.Is(err, natsconn.ErrClosed) && !errors.Is(err, natsconn.ErrUnavailable):
			return events.Event{}, events.ErrClosed
		case ctx.Err() != nil:
			return events.Event{}, ctx.Err()
		case err != nil:
			wake.Sleep(both, retryDelay)
		}
	}
	e := r.buffer[0]
	r.buffer[0] = events.Event{}
	r.buffer = r.buffer[1:]
	return e, nil
}

// fill reads one message of the source and puts its matching events into r.buffer, maybe none.
// Messages from before r.since, or that were read already, are skipped. Without a source it makes
// one and reads nothing. It adds to r.missed the events that the server removed before they were
// read, and 1 for an invalid message.
//
// It returns nil also if ctx ended or the source was lost, and an error only if no source can be
// made. Call it with r.reading held.
func (r *replay) fill(ctx context.Context) error {
	if r.source == nil {
		return r.connect(ctx)
	}
	m, meta, ok := r.read(ctx)
	if !ok {
		return nil
	}
	r.source.last++
	seq := meta.Sequence.Stream
	if seq < r.next {
		return nil
	}
	r.missed.Add(seq - r.next)
	r.next = seq + 1
	if meta.Timestamp.Before(r.since) {
		return nil
	}
	es, err := r.filter.Decode(m.Data())
	if err != nil {
		r.missed.Add(1)
	}
	r.buffer = es
	return nil
}

// read waits for the next message of the source. Call it with r.reading held.
//
//   - ctx ends: ok is false.
//   - The source has ended, or a message was lost on the way: it drops the source, and ok is
//     false.
//   - Otherwise meta holds the message's sequences and time.
func (r *replay) read(ctx context.Context) (m jetstream.Msg, meta *jetstream.MsgMetadata, ok bool) {
	select {
	case m, ok = <-r.source.messages:
	case <-ctx.Done():
		return nil, nil, false
	}
	if ok {
		var err error
		meta, err = m.Metadata()
		ok = err == nil && meta.Sequence.Consumer == r.source.last+1
	}
	if !ok {
		r.drop()
	}
	return m, meta, ok
}

// drop closes s.unused of the current source, which ends it, and sets r.source to nil. Call it
// with r.reading held.
func (r *replay) drop() {
	close(r.source.unused)
	r.source = nil
}

// Dropped implements [events.DropCounter]: it counts events that were removed before the stream
// came to them, including those that its filter does not match, and messages without events.
func (r *replay) Dropped() uint64 { return r.missed.Load() }

// Close implements [events.Subscription]: it ends the subscription, so that every Receive returns
// ErrClosed. It does not block and returns nil. It takes bus.mu.
func (r *replay) Close(context.Context) error {
	r.end()
	return nil
}

// end ends the stream and its goroutines, and removes it from the bus. Every Receive then returns
// ErrClosed. It does not block. It takes bus.mu.
func (r *replay) end() {
	r.stop()
	r.bus.unregister(r)
}
