package redisresults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// stream receives the notifications of one node. Messages enter a bounded buffer undecoded, so that
// the server never waits. Receive decodes them. It implements [resultstore.Notifications].
type stream struct {
	store    *Store
	node     string
	listener *redisconn.Listener
	messages *ring.Stream[string]
	ctx      context.Context // ends with the stream
	stop     context.CancelFunc
	pending  chan string // messages that Receive took and put back
	// the server has confirmed the subscription once; like lost, used only by the listener's goroutine
	opened bool
	lost   error // why the previous connection ended
}

// Notify implements [resultstore.Notifier]: it returns a stream of the terminal records of the
// node. It blocks until the server has confirmed the subscription. Each open stream of a node has
// its own connection and receives every terminal record of the node. If Config.Buffer notifications
// wait, the oldest is dropped for each further one. It takes s.mu, but not while it waits.
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
	n := &stream{
		store:    s,
		node:     node,
		messages: ring.NewStream[string](s.cfg.Buffer, resultstore.ErrClosed),
		pending:  make(chan string, 16),
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		n.stop()
		return nil, resultstore.ErrClosed
	}
	s.streams[n] = struct{}{}
	n.listener = s.conn.Listen(redisconn.ListenerConfig{
		Message:    func(_, message string) { n.messages.Put(&message) },
		Subscribed: n.subscribed,
		Lost:       func(err error) { n.lost = err },
	})
	s.mu.Unlock()
	err := n.listener.Subscribe(ctx, s.names.channel(node))
	if err != nil {
		n.end()
		return nil, failure("notifications of "+node, err)
	}
	return n, nil
}

// subscribed logs a warning at each confirmation of the subscription after the first: notifications
// were missed while the connection was lost. It runs on the listener's goroutine.
func (n *stream) subscribed(channel string) {
	if n.opened {
		n.store.cfg.Logger.LogAttrs(n.ctx, slog.LevelWarn, "result notifications were interrupted; missed results can be loaded from the store",
			slog.String("channel", channel), slog.Any("error", n.lost))
	}
	n.opened = true
}

// Receive implements [resultstore.Notifications]: it waits for the next terminal record for the
// node and returns it. Records that were deleted or have expired since are skipped. Returns
// ErrClosed after Close of the stream or the store. If ctx ends it returns ctx's error. A record
// that was being loaded then comes with a later call. The stream continues after these additional
// errors:
//
//   - [resultstore.ErrMalformed] for a message that is not a record for this node
//   - [resultstore.ErrUnavailable] for a large record that the server refuses to return
func (n *stream) Receive(ctx context.Context) (resultstore.Record, error) {
	for {
		message, err := n.next(ctx)
		if err != nil {
			return resultstore.Record{}, err
		}
		r, err := n.read(ctx, message)
		switch {
		case errors.Is(err, resultstore.ErrNotFound): // deleted or expired since
		case err == nil && !r.State.Terminal(): // not a terminal record
		default:
			return r, err
		}
	}
}

// next waits for the next message and returns it. Messages that were put back come first. Returns
// ctx's error when ctx ends and ErrClosed after Close.
func (n *stream) next(ctx context.Context) (string, error) {
	if n.ctx.Err() != nil {
		return "", resultstore.ErrClosed
	}
	select {
	case m := <-n.pending:
		return m, nil
	default:
		return n.messages.Get(ctx)
	}
}

// read decodes the record in a message, or loads the record that a notice names and waits for that.
// Returns ErrMalformed if it is not a record for this node, and the errors of load.
func (n *stream) read(ctx context.Context, message string) (resultstore.Record, error) {
	id, large := noticed(message)
	var r resultstore.Record
	var err error
	if large {
		r, err = n.load(ctx, id, message)
	} else {
		r, err = decodeAny([]byte(message))
	}
	if err == nil && r.ReplyTo != n.node {
		err = fmt.Errorf("%w: the message is a record for another node", resultstore.ErrMalformed)
	}
	if err != nil {
		return resultstore.Record{}, err
	}
	return r, nil
}

// load loads the record of a task until ctx or the stream ends. If ctx ends first it returns ctx's
// error and puts message into n.pending for the next Receive, unless that holds 16 messages.
// Returns ErrMalformed for an invalid id, ErrClosed if the stream ends, and the errors of
// Store.Load: ErrNotFound if no record exists.
func (n *stream) load(ctx context.Context, id task.ID, message string) (resultstore.Record, error) {
	if err := id.Check(); err != nil {
		return resultstore.Record{}, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	r, err := n.store.Load(both, id)
	switch {
	case n.ctx.Err() != nil:
		return r, resultstore.ErrClosed
	case ctx.Err() != nil && err != nil:
		select {
		case n.pending <- message:
		default: // pending is full: the record can be found with Load
		}
		return r, ctx.Err()
	}
	return r, err
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
	n.stop()
	n.messages.Close()
	n.listener.Close()
	n.store.mu.Lock()
	delete(n.store.streams, n)
	n.store.mu.Unlock()
}
