package natsbroker

import (
	"context"
	"errors"
	"sync"
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
type outbox struct {
	conn *natsconn.Conn

	run func(fn func(ctx context.Context)) bool // in the background

	mu      sync.Mutex
	gen     uint64 // the newest session that was told of
	recent  []string
	next    int
	late    []lateSettlement
	waiting bool // somebody waits for a connection, for what is late
}

type lateSettlement struct {
	reply string
	body  []byte
	until time.Time
}

func (o *outbox) init(conn *natsconn.Conn, run func(fn func(ctx context.Context)) bool) {
	o.conn, o.run = conn, run
}

// ack acknowledges a delivery.
func (o *outbox) ack(reply string, until time.Time) {
	o.mu.Lock()
	if len(o.recent) < remembered {
		o.recent = append(o.recent, reply)
	} else {
		o.recent[o.next] = reply
		o.next = (o.next + 1) % remembered
	}
	o.mu.Unlock()
	o.send(reply, ackBody, until)
}

// nak gives a delivery back.
func (o *outbox) nak(reply string, until time.Time) { o.send(reply, nakBody, until) }

// send never waits: without a connection the settlement is kept until there is one.
func (o *outbox) send(reply string, body []byte, until time.Time) {
	if s := o.conn.Live(); s != nil {
		if err := s.NATS.Publish(reply, body); err == nil || !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return // any other error means that the connection is closed for good
		}
	}
	o.mu.Lock()
	o.late = append(o.late, lateSettlement{reply, body, until})
	start := !o.waiting
	o.waiting = true
	o.mu.Unlock()
	if start {
		go func() { // run takes the Broker's lock
			if !o.run(o.flushLate) { // closed: nothing leaves any more
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
		s, err := o.conn.Session(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, natsconn.ErrClosed) {
				return
			}
			t := time.NewTimer(time.Second) // refused just now
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
			continue
		}
		o.connected(s)
		o.mu.Lock()
		late := o.late
		o.late, o.waiting = nil, false
		o.mu.Unlock()
		now := time.Now()
		for _, l := range late {
			if now.Before(l.until) {
				o.send(l.reply, l.body, l.until)
			}
		}
		return
	}
}

// connected sends what may have been lost with the last connection. It is told of each new session.
func (o *outbox) connected(s *natsconn.Session) {
	o.mu.Lock()
	if s.Gen <= o.gen {
		o.mu.Unlock()
		return
	}
	var recent []string
	if o.gen != 0 {
		recent = append(recent, o.recent...)
	}
	o.gen = s.Gen
	o.mu.Unlock()
	for _, reply := range recent {
		_ = s.NATS.Publish(reply, ackBody) // lost again with the connection: the next one sends it again
	}
}
