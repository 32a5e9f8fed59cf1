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

// What a consumer answers to a delivery.
var (
	ackBody      = []byte("+ACK")
	nakBody      = []byte("-NAK")
	progressBody = []byte("+WPI")
)

// remembered is how many acknowledgements are sent again when the connection was lost.
const remembered = 8192

// outbox sends settlements. NATS answers none of them unless asked, so those that were on their way when a connection was lost
// may have been lost with it: the last acknowledgements are sent again on the next one, which does no harm to a message that
// has gone, and saves one that was handled from being handled again. What is settled while there is no connection waits for
// one, as long as its lease lasts.
//
// A settlement names its message by stream, consumer and sequence. A stream that was lost and made again, as one in memory is
// when its server starts again, counts from 1 again, so a settlement of the old one would hit another message. So nothing is
// settled on a new connection until the queues have been found to be the same; see Broker.recheck.
type outbox struct {
	b       *Broker
	trusted atomic.Uint64 // the session on which settlements may leave
	checks  chan struct{} // holds one value while somebody looks whether the queues are the same

	mu      sync.Mutex
	gen     uint64 // the newest session that was told of
	recent  []acked
	next    int
	late    []lateSettlement
	waiting bool // somebody waits for a connection, for what is late
}

type acked struct {
	queue *queue
	reply string
}

type lateSettlement struct {
	acked
	body  []byte
	until time.Time
}

func (o *outbox) init(b *Broker) { o.b, o.checks = b, make(chan struct{}, 1) }

// ack acknowledges a delivery.
func (o *outbox) ack(q *queue, reply string, until time.Time) {
	o.mu.Lock()
	if len(o.recent) < remembered {
		o.recent = append(o.recent, acked{q, reply})
	} else {
		o.recent[o.next] = acked{q, reply}
		o.next = (o.next + 1) % remembered
	}
	o.mu.Unlock()
	o.send(q, reply, ackBody, until)
}

// nak gives a delivery back.
func (o *outbox) nak(q *queue, reply string, until time.Time) { o.send(q, reply, nakBody, until) }

// trusts reports whether settlements may leave on a session.
func (o *outbox) trusts(s *natsconn.Session) bool { return s.Gen == o.trusted.Load() }

// doubt holds settlements back until the queues have been found to be the same.
func (o *outbox) doubt() { o.trusted.Store(0) }

// send never waits: without a connection the settlement is kept until there is one.
func (o *outbox) send(q *queue, reply string, body []byte, until time.Time) {
	if s := o.b.conn.Live(); s != nil && o.trusts(s) {
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
			if !o.b.background(o.flushLate) { // closed: nothing leaves any more
				o.mu.Lock()
				o.waiting, o.late = false, nil
				o.mu.Unlock()
			}
		}()
	}
}

// flushLate waits for a connection and sends what waited for it.
func (o *outbox) flushLate(ctx context.Context) {
	for {
		s, err := o.b.conn.Session(ctx)
		if err == nil {
			err = o.connected(ctx, s)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil || errors.Is(err, natsconn.ErrClosed) || !o.b.pause(ctx, time.Second) { // else refused just now
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

// connected is told of each new session, and lets settlements leave on it. It sends what may have been lost with the last one.
func (o *outbox) connected(ctx context.Context, s *natsconn.Session) error {
	if o.trusts(s) {
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
	if o.trusts(s) {
		return nil
	}
	if !first { // else nothing has been taken from any queue
		if err := o.b.recheck(ctx); err != nil {
			return err
		}
	}
	o.mu.Lock()
	var recent []acked
	if !first && newer {
		recent = slices.Clone(o.recent)
	}
	if s.Gen >= o.gen { // else there is a newer one by now
		o.gen = s.Gen
		o.trusted.Store(s.Gen)
	}
	o.mu.Unlock()
	for _, r := range recent {
		_ = s.NATS.Publish(r.reply, ackBody) // lost again with the connection: the next one sends it again
	}
	return nil
}

// queues returns those of which something is to be sent.
func (o *outbox) queues(qs map[*queue]struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.recent {
		qs[r.queue] = struct{}{}
	}
	for _, l := range o.late {
		qs[l.queue] = struct{}{}
	}
}

// drop forgets what was to be sent of a queue.
func (o *outbox) drop(q *queue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recent = slices.DeleteFunc(o.recent, func(r acked) bool { return r.queue == q })
	o.next = 0
	o.late = slices.DeleteFunc(o.late, func(l lateSettlement) bool { return l.queue == q })
}

// recheck looks whether each queue from which something was taken still lies in the stream that it was taken from, which its
// record tells: it is written once. What was taken from one that does not is lost.
func (b *Broker) recheck(ctx context.Context) error {
	b.mu.Lock()
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	qs := make(map[*queue]struct{})
	b.outbox.queues(qs)
	for _, s := range subs {
		qs[s.q] = struct{}{}
	}
	for q := range qs {
		b.queues.Delete(q.name) // it is asked for, and made again if need be
		now, err := b.queue(ctx, q.name)
		if err != nil {
			return err
		}
		born := now.born.Load()
		if q.born.Load() == born {
			continue
		}
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the queue was lost with its stream and made again; what had been taken from it is given up",
			slog.String("queue", q.name))
		b.outbox.drop(q)
		for _, s := range subs {
			if s.q == q {
				s.loseAll()
			}
		}
		q.born.Store(born)
	}
	return nil
}
