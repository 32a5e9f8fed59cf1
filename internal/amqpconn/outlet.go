package amqpconn

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/netconn"
)

// outlet is one channel of a Publisher.
type outlet struct {
	ch      *Channel
	born    time.Time
	slots   chan *flight // free slots
	all     []flight
	returns chan amqp.Return

	mu          sync.Mutex // held while a message is published and while returns are matched
	seq         uint64
	anyReturned atomic.Bool
}

// flight is a message that waits for its confirmation. Its fields are written with outlet.mu held
// before active is set.
type flight struct {
	active   atomic.Bool
	returned atomic.Pointer[amqp.Error]
	out      *outlet
	seq      uint64
	exchange string
	key      string
	id       string // the message id, or else the correlation id: Celery's messages have no other
	body     []byte
	dc       *amqp.DeferredConfirmation
}

// write encodes m into the connection's buffer. It fills the slot f and marks it as active, so that
// outcome finds its confirmation. A nil f means an unconfirmed message. Returns errGone if m was
// not sent, ErrIndeterminate if it may have been sent, or ErrMalformed. f is unchanged after an
// error. It takes o.mu and does not wait for the server.
func (o *outlet) write(f *flight, exchange, key string, m *amqp.Publishing) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	sock := o.ch.sess.sock
	before := sock.Taken()
	dc, err := o.ch.PublishWithDeferredConfirm(exchange, key, f != nil, false, *m)
	if err != nil {
		return writeError(err, sock.Taken()-before, len(m.Body))
	}
	if f != nil {
		o.fly(f, exchange, key, m, dc)
	}
	return nil
}

// fly fills the slot f with m, whose confirmation is dc, and marks it as active. Call it with o.mu
// held.
func (o *outlet) fly(f *flight, exchange, key string, m *amqp.Publishing, dc *amqp.DeferredConfirmation) {
	o.seq++
	f.seq, f.exchange, f.key, f.id, f.body, f.dc = o.seq, exchange, key, cmp.Or(m.MessageId, m.CorrelationId), m.Body, dc
	f.active.Store(true)
}

// writeError returns the class of an error of the library for a message with a body of size bytes.
// sent is the number of bytes that the socket accepted from all writers meanwhile. The frames of a
// failed message may still be sent, because they wait in a buffer that other writers flush. They
// cannot all be sent if fewer bytes were accepted than the body has, and the server ignores an
// incomplete message.
func writeError(err error, sent int64, size int) error {
	switch {
	// an error of the encoder
	case !errors.Is(err, netconn.ErrNotWritten) && !errors.Is(err, amqp.ErrClosed):
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case sent > int64(size): // the frames are larger than the body
		return fmt.Errorf("%w: %w", ErrIndeterminate, err)
	default:
		return errGone
	}
}

// release clears the marks of f and puts it back to the free slots, which may wake a waiting
// publish.
func (o *outlet) release(f *flight) {
	f.active.Store(false)
	f.returned.Store(nil)
	o.slots <- f
}

// outcome returns the answer to f and frees its slot: nil if confirmed, ErrUnroutable if returned,
// ErrRefused if refused, and ErrIndeterminate if the channel ended first. Call it once, after f.dc
// is done. It takes o.mu if messages were returned. If the channel has ended it waits for the
// reason.
func (o *outlet) outcome(f *flight) error {
	// The return of a message arrives before its confirmation. It is still in o.returns, or another
	// call has set anyReturned and matches it while it holds mu.
	if len(o.returns) > 0 || o.anyReturned.Load() {
		o.matchReturns()
	}
	returned, acked := f.returned.Load(), f.dc.Acked()
	o.release(f)
	switch {
	case returned != nil:
		return fmt.Errorf("%w: %w", ErrUnroutable, returned)
	case acked:
		return nil
	case o.ch.IsClosed() || o.ch.sess.conn.IsClosed():
		<-o.ch.done
		return fmt.Errorf("%w: %w", ErrIndeterminate, o.ch.err)
	default:
		return fmt.Errorf("%w: negative confirmation", ErrRefused)
	}
}

// matchReturns assigns each returned message to its publish: the earliest unanswered one with an
// equal message, because returns arrive in the order of publishes. It marks that flight as
// returned. Equal messages are interchangeable, so it does not matter which of them was stored. It
// takes o.mu.
func (o *outlet) matchReturns() {
	o.anyReturned.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		select {
		case r, ok := <-o.returns:
			if !ok {
				return
			}
			var first *flight
			for i := range o.all {
				f := &o.all[i]
				if f.active.Load() && f.returned.Load() == nil && (first == nil || f.seq < first.seq) &&
					f.key == r.RoutingKey && f.exchange == r.Exchange && f.id == cmp.Or(r.MessageId, r.CorrelationId) && bytes.Equal(f.body, r.Body) {
					first = f
				}
			}
			if first != nil {
				first.returned.Store(&amqp.Error{Code: int(r.ReplyCode), Reason: r.ReplyText, Server: true})
			}
		default:
			return
		}
	}
}

// drain waits until no message is pending, by taking all slots, closes the channel and waits for
// the server's answer. It returns nil if the channel ends first, otherwise the error of closing.
func (o *outlet) drain() error {
	for range o.all {
		select {
		case <-o.slots:
		case <-o.ch.done:
			return nil
		}
	}
	if err := o.ch.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return err
	}
	return nil
}
