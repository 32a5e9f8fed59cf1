package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
)

// stream receives the documents of all tasks. They enter a bounded buffer undecoded, so that the
// server never waits. Receive decodes them. It implements [resultstore.Notifications].
type stream struct {
	store    *Store
	node     string
	listener *redisconn.Listener
	messages *ring.Stream[string]
	ended    atomic.Bool
	// the server has confirmed the subscription once; like lost, used only by the listener's goroutine
	opened bool
	lost   error // why the previous connection ended
}

// Notify implements [resultstore.Notifier]: it returns a stream of the terminal records of the
// node. It blocks until the server has confirmed the subscription.
//
// A document of Python does not name its submitter. The stream therefore has the records of all
// tasks that ran in Python. Of those that ran in Go it has the node's. Each open stream has a
// connection that receives the documents of all tasks. If Config.Buffer documents wait, the oldest
// is dropped for each further one.
//
// If ctx has already ended, Notify returns ctx's error. Without a server it waits until ctx ends. A
// refusal of the credentials or of the channel is returned at once. Both are
// [resultstore.ErrUnavailable]. An invalid node name is [resultstore.ErrMalformed]. Returns
// ErrClosed after Close.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !naming.ValidName(node) {
		return nil, fmt.Errorf("%w: node %q is not a valid name", resultstore.ErrMalformed, utf.Cut(node, 64))
	}
	n := &stream{store: s, node: node, messages: ring.NewStream[string](s.cfg.Buffer, resultstore.ErrClosed)}
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return nil, resultstore.ErrClosed
	}
	s.streams[n] = struct{}{}
	n.listener = s.conn.Listen(redisconn.ListenerConfig{
		Patterns:   true,
		Message:    func(_, message string) { n.messages.Put(&message) },
		Subscribed: n.subscribed,
		Lost:       func(err error) { n.lost = err },
	})
	s.mu.Unlock()
	if err := n.listener.Subscribe(ctx, s.key("*")); err != nil {
		n.end()
		return nil, failure("notifications of "+node, err)
	}
	return n, nil
}

// subscribed logs a warning at each confirmation of the subscription after the first: notifications
// were missed while the connection was lost. It runs on the listener's goroutine.
func (n *stream) subscribed(string) {
	if n.opened {
		n.store.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn,
			"result notifications were interrupted; missed results can be loaded from the store",
			slog.String("node", n.node), slog.Any("error", n.lost))
	}
	n.opened = true
}

// Receive implements [resultstore.Notifications]: it waits for the next terminal record for the
// node and returns it. Documents for other nodes and values that are not documents are skipped.
// Returns ErrClosed after Close of the stream or the store, and ctx's error if ctx ends.
func (n *stream) Receive(ctx context.Context) (resultstore.Record, error) {
	for {
		if n.ended.Load() {
			return resultstore.Record{}, resultstore.ErrClosed
		}
		message, err := n.messages.Get(ctx)
		if err != nil {
			return resultstore.Record{}, err
		}
		r, foreign, err := wire.DecodeResult([]byte(message))
		if err != nil {
			continue // any client of the server may send to these channels
		}
		if foreign {
			r.ReplyTo = n.node
		}
		if r.State.Terminal() && r.ReplyTo == n.node {
			return r, nil
		}
	}
}

// Close implements [resultstore.Notifications]: it ends the stream, so that every Receive returns
// ErrClosed, and its connection. It does not block and returns nil. It takes store.mu.
func (n *stream) Close(context.Context) error {
	n.end()
	return nil
}

// end ends the stream and its subscription, drops its waiting messages and removes it from the
// store. It does not block. It takes store.mu.
func (n *stream) end() {
	n.ended.Store(true)
	n.messages.Close()
	n.listener.Close()
	n.store.mu.Lock()
	delete(n.store.streams, n)
	n.store.mu.Unlock()
}

// errAnswer is the error for an answer of a script that the store does not know.
var errAnswer = errors.New("the script returned an unknown answer")

var _ resultstore.Notifier = (*Store)(nil)
