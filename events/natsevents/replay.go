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
	// ahead is how many events the server sends ahead of the reading.
	ahead = 500
	// idle is how long the server keeps a consumer that nobody reads. The stream makes another one then.
	idle = 30 * time.Second
	// heartbeat is how often the server shows that it lives while there are no events; when two are missing the stream asks
	// anew.
	heartbeat = 5 * time.Second
	// makeTry is how long the answer to one request for a consumer is waited for: a leader that has just died never answers.
	makeTry = 5 * time.Second
	// again is the time before another attempt to make a consumer.
	again = 100 * time.Millisecond
)

// replay is a stream of kept events. Receive decodes them.
type replay struct {
	bus    *Bus
	filter events.Filter
	since  time.Time
	ctx    context.Context // ends with the stream
	stop   context.CancelFunc
	missed atomic.Uint64

	turn    chan struct{} // held by the one Receive that reads; guards what follows
	created time.Time     // of the stream that next is about
	next    uint64        // the sequence of the next message. 0: not known yet
	source  *source       // nil: none yet, or it was lost
	buffer  []events.Event
}

// source is a consumer on a session.
type source struct {
	jetstream.MessagesContext
	last   uint64             // sequence of the consumer's last message
	come   chan jetstream.Msg // closed when nothing more comes
	unused chan struct{}      // closed when the stream has no use for it any more
}

// read hands on what comes, one message at a time. The client library looks for the server's heartbeats only within one call
// of Next, so that call outlives a Receive whose ctx ends early.
func (s *source) read(ctx context.Context) {
	defer close(s.come)
	for {
		m, err := s.Next(jetstream.NextContext(ctx))
		if err != nil {
			return
		}
		select {
		case s.come <- m:
		case <-s.unused:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Replay implements [events.Retainer]. It waits for a server like [Bus.Subscribe]. A stream that is read so late that what it
// comes to is not kept any more goes on with the oldest that is, and counts what it missed.
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
	r := &replay{bus: b, filter: f, since: since, turn: make(chan struct{}, 1)}
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

// connect makes a consumer that begins where the stream stands. It waits for a server until ctx ends.
func (r *replay) connect(ctx context.Context) error {
	for {
		info, err := r.bus.keeper.look(ctx)
		if err != nil {
			return err
		}
		r.settle(info)
		err = r.consume(ctx)
		if !mayPass(err) || !wake.Sleep(ctx, again) {
			return err
		}
	}
}

// mayPass reports whether a consumer may be had a little later: while a cluster elects a leader, nobody answers, or a server
// says that it cannot.
func mayPass(err error) bool {
	return errors.Is(err, natsconn.ErrIndeterminate) || errors.Is(err, natsconn.ErrNoStream) || errors.Is(err, natsconn.ErrUnavailable)
}

// settle finds the place in a stream that may be another one of the same name, or may have lost its end with its server's
// power.
func (r *replay) settle(info *jetstream.StreamInfo) {
	switch {
	case r.next == 0: // the consumer will tell
	case !info.Created.Equal(r.created):
		r.next = 1
	default:
		r.next = min(r.next, info.State.LastSeq+1)
	}
	r.created = info.Created
}

// consume makes a consumer on the present session.
func (r *replay) consume(ctx context.Context) error {
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: idle,
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
		ctx, cancel := context.WithTimeout(ctx, makeTry)
		defer cancel()
		c, err := sess.JetStream.CreateConsumer(ctx, r.bus.names.stream, cfg)
		if err != nil {
			return err
		}
		info := c.CachedInfo()
		if r.next == 0 {
			r.next = info.Delivered.Stream + 1
		}
		m, err := c.Messages(jetstream.PullMaxMessages(ahead), jetstream.PullExpiry(idle), jetstream.PullHeartbeat(heartbeat),
			jetstream.WithMessagesErrOnMissingHeartbeat(true))
		if err != nil {
			return err
		}
		r.source = &source{MessagesContext: m, come: make(chan jetstream.Msg), unused: make(chan struct{})}
		return r.watch(r.source, sess, info.Name)
	})
}

// watch reads from a source and ends it with its session, with the stream, or when it is not used any more.
func (r *replay) watch(s *source, sess *natsconn.Session, consumer string) error {
	watching := r.bus.spawn(func() { s.read(r.ctx) }) && r.bus.spawn(func() {
		select {
		case <-s.unused:
		case <-r.ctx.Done():
		case <-sess.Done():
		}
		s.Stop()
		// The server forgets the consumer by itself, a little later.
		_ = sess.NATS.Publish(r.bus.names.remove(consumer), nil)
	})
	if !watching {
		s.Stop()
		return natsconn.ErrClosed
	}
	return nil
}

// Retention implements [events.RetentionTeller].
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription]. Without a server it waits until ctx ends.
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	select {
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	default:
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
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
			wake.Sleep(both, again)
		}
	}
	e := r.buffer[0]
	r.buffer[0] = events.Event{}
	r.buffer = r.buffer[1:]
	return e, nil
}

// fill reads one message, or makes a consumer to read it with.
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
	es, err := events.Decode(m.Data())
	if err != nil {
		r.missed.Add(1)
	}
	r.buffer = slices.DeleteFunc(es, func(e events.Event) bool { return !r.filter.Match(&e) })
	return nil
}

// read reads the next message of the source. When no more come, or one was lost on the way, the source is given up.
func (r *replay) read(ctx context.Context) (m jetstream.Msg, meta *jetstream.MsgMetadata, ok bool) {
	select {
	case m, ok = <-r.source.come:
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

// drop gives the source up.
func (r *replay) drop() {
	close(r.source.unused)
	r.source = nil
}

// Dropped implements [events.DropCounter]: the events, those that the filter holds back included, that were not kept any
// more when the stream came to them, and messages that hold none.
func (r *replay) Dropped() uint64 { return r.missed.Load() }

// Close implements [events.Subscription]. It returns nil.
func (r *replay) Close(context.Context) error {
	r.end()
	return nil
}

func (r *replay) end() {
	r.stop()
	r.bus.forget(r)
}
