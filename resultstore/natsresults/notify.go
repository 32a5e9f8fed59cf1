package natsresults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
)

// maxWaiting is how many bytes of notifications wait for one stream's reader.
const maxWaiting = 64 << 20

// tell hands a terminal record to the node that waits for it, if there is a connection. It does not wait.
func (s *Store) tell(node string, body []byte) {
	if !keyset.ValidID(node) { // nobody can listen for it
		return
	}
	if sess, err := s.conn.Session(s.now); err == nil {
		_ = sess.NATS.Publish(s.names.notify(node), body) // a hint that is lost when the connection is
	}
}

// Notify implements [resultstore.Notifier]: it subscribes to the node's subject and returns when the server knows. Without a
// server it waits until ctx ends; a refusal of the credentials is returned at once. Both are [resultstore.ErrUnavailable]. A
// node that is not 1 to 128 bytes of visible ASCII is [resultstore.ErrMalformed]. Every open stream of a node gets every
// record.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !keyset.ValidID(node) {
		return nil, fmt.Errorf("%w: node %q is no name", resultstore.ErrMalformed, utf.Cut(node, 64))
	}
	if !s.begin() {
		return nil, resultstore.ErrClosed
	}
	defer s.end()
	n := &news{store: s, node: node, items: make(chan *nats.Msg, s.cfg.Buffer), ended: make(chan struct{})}
	err := s.conn.Do(ctx, func(_ context.Context, sess *natsconn.Session) (err error) {
		n.sub, err = sess.NATS.Subscribe(s.names.notify(node), n.take)
		return err
	})
	if err != nil {
		return nil, failure("notifications", err)
	}
	if err := s.seen(ctx); err != nil {
		n.end()
		return nil, failure("notifications", err)
	}
	return n, nil
}

// seen waits until the server has seen what was written. The client library subscribes anew after a loss; what counts is that
// a server knows now.
func (s *Store) seen(ctx context.Context) error {
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

// news is the stream of records of one node. It implements [resultstore.Notifications].
type news struct {
	store   *Store
	node    string
	sub     *nats.Subscription
	items   chan *nats.Msg
	waiting atomic.Int64 // bytes in items
	once    sync.Once
	ended   chan struct{}
}

// take runs on the subscription's goroutine. It does not wait: what there is no room for is lost.
func (n *news) take(m *nats.Msg) {
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

// Receive implements [resultstore.Notifications]. Besides its errors it returns [resultstore.ErrMalformed] for each message
// that is no record for this node; the stream goes on.
func (n *news) Receive(ctx context.Context) (resultstore.Record, error) {
	select { // an ended stream gives nothing more
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
				err = fmt.Errorf("%w: a record for another node", resultstore.ErrMalformed)
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

// Close implements [resultstore.Notifications]. It returns nil.
func (n *news) Close(context.Context) error {
	n.end()
	return nil
}

// end ends the stream. The library may be dialling with its lock held, which nobody has to wait for: then the goroutine ends
// with the store at the latest.
func (n *news) end() {
	n.once.Do(func() {
		close(n.ended)
		if !n.store.begin() { // the connection takes it along
			return
		}
		go func() {
			defer n.store.end()
			_ = n.sub.Unsubscribe() // it fails when the connection is closed for good
		}()
	})
}
