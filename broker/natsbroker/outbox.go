package natsbroker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// The answers of a consumer to a delivery.
var (
	ackBody      = []byte("+ACK")
	nakBody      = []byte("-NAK")
	progressBody = []byte("+WPI")
)

// maxRecent limits the acknowledgements that are sent again after a lost connection.
const maxRecent = 8192

// outbox sends settlements. NATS does not answer them, so settlements in progress may be lost with
// a connection. The last acknowledgements are therefore sent again on the next connection. That is
// harmless for a message that no longer exists, and prevents a second run of one that was handled.
// A settlement without a connection waits for one, as long as its lease lasts.
//
// A settlement names its message by stream, consumer and sequence. A stream that was lost and
// created again counts from 1 again, for example one in memory after a restart of its server. A
// settlement of the old stream would hit another message. So nothing is settled on a new connection
// before Broker.checkQueues has found that the queues are the same.
type outbox struct {
	b       *Broker
	trusted atomic.Uint64 // number of the connection on which settlements may be sent
	checks  chan struct{} // holds one value while a goroutine checks the queues

	mu      sync.Mutex
	gen     uint64 // number of the newest connection so far
	recent  []acked
	next    int // index of the oldest in recent, once it has maxRecent
	late    []lateSettlement
	waiting bool // a goroutine waits for a connection, to send late
}

// acked is an acknowledgement of a delivery of a queue. reply is the subject to which it is sent.
type acked struct {
	queue *queue
	reply string
}

// lateSettlement is a settlement that waits for a connection. It is dropped if until has passed.
type lateSettlement struct {
	acked
	body  []byte
	until time.Time
}

// init prepares the outbox of b. Call it once before use.
func (o *outbox) init(b *Broker) { o.b, o.checks = b, make(chan struct{}, 1) }

// ack sends the acknowledgement of a delivery of q. It does not wait. Without a connection it is
// sent later, unless until has passed. The last acknowledgements are remembered, to send them again
// after a lost connection. It takes o.mu.
func (o *outbox) ack(q *queue, reply string, until time.Time) {
	o.remember(acked{q, reply})
	o.send(q, reply, ackBody, until)
}

// remember keeps an acknowledgement, and forgets the oldest if there are too many. It takes o.mu.
func (o *outbox) remember(a acked) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.recent) < maxRecent {
		o.recent = append(o.recent, a)
		return
	}
	o.recent[o.next] = a
	o.next = (o.next + 1) % maxRecent
}

// nak sends the answer that returns a delivery to its queue. It does not wait. Without a connection
// it is sent later, unless until has passed. It takes o.mu.
func (o *outbox) nak(q *queue, reply string, until time.Time) { o.send(q, reply, nakBody, until) }

// isTrusted reports whether settlements may be sent on the connection s.
func (o *outbox) isTrusted(s *natsconn.Session) bool { return s.Gen == o.trusted.Load() }

// distrust forbids settlements on every connection until useConnection has checked the queues
// again. They are kept meanwhile.
func (o *outbox) distrust() { o.trusted.Store(0) }

// send sends a settlement. It never waits: without a connection the settlement is kept until one
// exists, and dropped if until has passed by then. A goroutine, started if none runs, waits for
// the connection, see flushLate. The settlement is also kept if the connection's buffer is full.
// It is dropped after Close, and if the connection is closed for good. It takes o.mu.
func (o *outbox) send(q *queue, reply string, body []byte, until time.Time) {
	if s := o.b.conn.Live(); s != nil && o.isTrusted(s) {
		if err := s.NATS.Publish(reply, body); err == nil || !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return // any other error means that the connection is closed for good
		}
	}
	o.mu.Lock()
	o.late = append(o.late, lateSettlement{acked{q, reply}, body, until})
	start := !o.waiting
	o.waiting = true
	o.mu.Unlock()
	if start {
		go func() { // it takes the Broker's lock
			if !o.b.background(o.flushLate) { // after Close nothing is sent
				o.mu.Lock()
				o.waiting, o.late = false, nil
				o.mu.Unlock()
			}
		}()
	}
}

// flushLate waits for a connection on which settlements are permitted. Then it sends the
// settlements in o.late, drops those whose time has passed, and clears o.waiting. After an error,
// for example refused access, it tries again after a second. It returns without sending, and leaves
// o.late and o.waiting, if ctx ends or the Broker is closed. It takes o.mu, but not while it waits.
func (o *outbox) flushLate(ctx context.Context) {
	for {
		s, err := o.b.conn.Session(ctx)
		if err == nil {
			err = o.useConnection(ctx, s)
		}
		if err == nil {
			break
		}
		// otherwise access was refused just now
		if ctx.Err() != nil || errors.Is(err, natsconn.ErrClosed) || !o.b.pause(ctx, time.Second) {
			return
		}
	}
	o.mu.Lock()
	late := o.late
	o.late, o.waiting = nil, false
	o.mu.Unlock()
	now := time.Now()
	for _, l := range late {
		if now.Before(l.until) {
			o.send(l.queue, l.reply, l.body, l.until)
		}
	}
}

// useConnection permits settlements on the connection s. Call it with each new connection before s
// is used. It blocks until all is done:
//
//   - It checks that the queues are still in the same stream, since settlements would else concern
//     other messages. It skips this on the first connection.
//   - It permits settlements on s, unless a newer connection exists.
//   - It sends the acknowledgements again that may have been lost with the last connection.
//
// It does nothing if s is permitted already. Concurrent callers wait until the first is done.
// Returns ErrUnavailable if ctx ends first, and the error of the check; s stays forbidden then. It
// takes o.mu.
func (o *outbox) useConnection(ctx context.Context, s *natsconn.Session) error {
	if o.isTrusted(s) {
		return nil
	}
	select {
	case o.checks <- struct{}{}:
		defer func() { <-o.checks }()
	case <-ctx.Done():
		return unavailable(ctx)
	}
	o.mu.Lock()
	first, newer := o.gen == 0, s.Gen > o.gen
	o.mu.Unlock()
	if o.isTrusted(s) {
		return nil
	}
	if !first { // on the first connection nothing was received before
		if err := o.b.checkQueues(ctx); err != nil {
			return err
		}
	}
	o.mu.Lock()
	var recent []acked
	if !first && newer {
		recent = slices.Clone(o.recent)
	}
	if s.Gen >= o.gen { // otherwise a newer connection exists
		o.gen = s.Gen
		o.trusted.Store(s.Gen)
	}
	o.mu.Unlock()
	for _, r := range recent {
		_ = s.NATS.Publish(r.reply, ackBody) // if it is lost again, the next connection sends it again
	}
	return nil
}

// addQueues adds the queues of all remembered settlements to qs. It takes o.mu.
func (o *outbox) addQueues(qs map[*queue]struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.recent {
		qs[r.queue] = struct{}{}
	}
	for _, l := range o.late {
		qs[l.queue] = struct{}{}
	}
}

// dropQueue drops all remembered settlements of a queue. It takes o.mu.
func (o *outbox) dropQueue(q *queue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The oldest comes first, so that it is overwritten next.
	inOrder := slices.Concat(o.recent[o.next:], o.recent[:o.next])
	o.recent, o.next = slices.DeleteFunc(inOrder, func(r acked) bool { return r.queue == q }), 0
	o.late = slices.DeleteFunc(o.late, func(l lateSettlement) bool { return l.queue == q })
}

// checkQueues checks whether each queue with deliveries or settlements of this process is still in
// the same stream. The time of its record shows that, because the record is written only once. If
// the queue is in another stream, checkQueues drops its settlements, marks its deliveries as lost,
// and logs a warning.
//
// It reads each record from the server, and creates a lost queue again. Returns the first error;
// the queues after it are not checked then. It waits for the server. It takes b.mu, o.mu and the
// mutexes of the subscriptions.
func (b *Broker) checkQueues(ctx context.Context) error {
	b.mu.Lock()
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	qs := make(map[*queue]struct{})
	b.outbox.addQueues(qs)
	for _, s := range subs {
		qs[s.q] = struct{}{}
	}
	for q := range qs {
		b.queues.Delete(q.name) // forces a read from the server, and creates the queue again if necessary
		now, err := b.queue(ctx, q.name)
		if err != nil {
			return err
		}
		born := now.recordedAt.Load()
		if q.recordedAt.Load() == born {
			continue
		}
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the queue was lost with its stream and created again; its deliveries are lost",
			slog.String("queue", q.name))
		b.outbox.dropQueue(q)
		for _, s := range subs {
			if s.q == q {
				s.loseAll()
			}
		}
		q.recordedAt.Store(born)
	}
	return nil
}
