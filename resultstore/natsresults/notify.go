package natsresults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
)

// maxWaiting limits the bytes of the notifications that wait for the reader of one stream.
const maxWaiting = 64 << 20

// notify publishes a terminal record to the node in its ReplyTo, if a connection is open. It does
// not block and reports no error, because notifications are hints.
func (s *Store) notify(node string, body []byte) {
	if !naming.ValidID(node) { // such a node has no stream
		return
	}
	if sess, err := s.conn.Session(s.noWait); err == nil {
		_ = sess.NATS.Publish(s.names.notify(node), body) // a hint, lost with the connection
	}
}

// Notify implements [resultstore.Notifier]: it returns a stream of the terminal records of the
// node. It subscribes to the node's subject and blocks until the server has received the
// subscription. Every open stream of a node receives every terminal record of the node. It takes
// s.mu, but not while it waits.
//
// If ctx has ended already, Notify returns ctx's error. Without a server it waits until ctx ends. A
// refusal of the credentials is returned at once. Both are [resultstore.ErrUnavailable]. A node
// that is not 1 to 128 bytes of visible ASCII is [resultstore.ErrMalformed]. Returns ErrClosed
// after Close.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !naming.ValidID(node) {
		return nil, fmt.Errorf("%w: node %q is not a valid name", resultstore.ErrMalformed, utf.Cut(node, 64))
	}
	if !s.begin() {
		return nil, resultstore.ErrClosed
	}
	defer s.end()
	n := &notifications{store: s, node: node, items: make(chan *nats.Msg, s.cfg.Buffer), ended: make(chan struct{})}
	err := s.conn.Do(ctx, func(_ context.Context, sess *natsconn.Session) (err error) {
		n.sub, err = sess.NATS.Subscribe(s.names.notify(node), n.onMessage)
		return err
	})
	if err != nil {
		return nil, failure("notifications", err)
	}
	if err := s.flush(ctx); err != nil {
		n.end()
		return nil, failure("notifications", err)
	}
	return n, nil
}

// flush waits until a server has processed all that was written to the connection. After a lost
// connection it waits for the next one, on which the client library subscribes again. Returns the
// error when ctx ends or the connection is closed for good.
func (s *Store) flush(ctx context.Context) error {
	for {
		if _, err := s.conn.Session(ctx); err != nil {
			return err
		}
		err := s.conn.Flush(ctx)
		if err == nil || errors.Is(err, natsconn.ErrClosed) || ctx.Err() != nil {
			return err
		}
	}
}

// notifications is the stream of records of one node. It implements [resultstore.Notifications].
type notifications struct {
	store   *Store
	node    string
	sub     *nats.Subscription
	items   chan *nats.Msg
	waiting atomic.Int64 // bytes in items
	once    sync.Once
	ended   chan struct{}
}

// onMessage adds a message to items. It drops the message if items is full or would hold more than
// maxWaiting bytes. It runs on the subscription's goroutine and does not block.
func (n *notifications) onMessage(m *nats.Msg) {
	size := int64(len(m.Data))
	if n.waiting.Add(size) > maxWaiting {
		n.waiting.Add(-size)
		return
	}
	select {
	case n.items <- m:
	default:
		n.waiting.Add(-size)
	}
}

// Receive implements [resultstore.Notifications]: it waits for the next terminal record for the
// node and returns it. It also returns [resultstore.ErrMalformed] for each message that is not a
// record for this node; the stream continues. Returns ctx's error when ctx ends and ErrClosed after
// Close of the stream or the store.
func (n *notifications) Receive(ctx context.Context) (resultstore.Record, error) {
	select { // an ended stream returns no more records
	case <-n.ended:
		return resultstore.Record{}, resultstore.ErrClosed
	case <-n.store.done:
		return resultstore.Record{}, resultstore.ErrClosed
	default:
	}
	for {
		select {
		case m := <-n.items:
			n.waiting.Add(-int64(len(m.Data)))
			rec, err := wire.DecodeRecord(m.Data)
			if err == nil && rec.ReplyTo != n.node {
				err = fmt.Errorf("%w: the message is a record for another node", resultstore.ErrMalformed)
			}
			if err != nil {
				return resultstore.Record{}, err
			}
			if rec.State.Terminal() {
				return rec, nil
			}
		case <-n.ended:
			return resultstore.Record{}, resultstore.ErrClosed
		case <-n.store.done:
			return resultstore.Record{}, resultstore.ErrClosed
		case <-ctx.Done():
			return resultstore.Record{}, ctx.Err()
		}
	}
}

// Close implements [resultstore.Notifications]: it ends the stream, so that every Receive returns
// ErrClosed, and unsubscribes in the background. It does not block and returns nil. It takes
// store.mu.
func (n *notifications) Close(context.Context) error {
	n.end()
	return nil
}

// end ends the stream and unsubscribes on a goroutine. Further calls do nothing. The library may
// hold its lock while it dials, so Unsubscribe may block; it returns at the latest when the store
// is closed. It takes store.mu.
func (n *notifications) end() {
	n.once.Do(func() {
		close(n.ended)
		if !n.store.begin() { // Close of the connection ends the subscription
			return
		}
		go func() {
			defer n.store.end()
			_ = n.sub.Unsubscribe() // fails only when the connection is closed for good
		}()
	})
}
