package redisresults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// stream is the notifications of one node. What comes is put into a bounded buffer as it is, so that the server never
// waits, and decoded by who receives it. It implements [resultstore.Notifications].
type stream struct {
	store    *Store
	node     string
	listener *redisconn.Listener
	messages *ring.Stream[string]
	ctx      context.Context // ends with the stream
	stop     context.CancelFunc
	pending  chan string // holds messages that a Receive took and had to give back
	opened   bool        // the server has confirmed the subscription once; as the next, only for the listener's goroutine
	lost     error       // why the connection before this one ended
}

// Notify implements [resultstore.Notifier]: it returns when the server has confirmed the subscription. Without a server it
// waits until ctx ends; a refusal of the credentials or of the channel is returned at once. Both are
// [resultstore.ErrUnavailable]. A node that is no valid name is [resultstore.ErrMalformed]. Every open stream of a node gets every record; each has a
// connection of its own.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !keyset.ValidName(node) {
		return nil, fmt.Errorf("%w: node %q is no name", resultstore.ErrMalformed, utf.Cut(node, 64))
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

// subscribed is told when the server has confirmed the subscription.
func (n *stream) subscribed(channel string) {
	if n.opened {
		n.store.cfg.Logger.LogAttrs(n.ctx, slog.LevelWarn, "result notifications were interrupted; results of that time are found in the store",
			slog.String("channel", channel), slog.Any("error", n.lost))
	}
	n.opened = true
}

// Receive implements [resultstore.Notifications]. Besides its errors it returns [resultstore.ErrMalformed] for each message
// of the channel that is no record for this node, and [resultstore.ErrUnavailable] for a large record that the server
// refuses to show; the stream goes on.
func (n *stream) Receive(ctx context.Context) (resultstore.Record, error) {
	for {
		message, err := n.next(ctx)
		if err != nil {
			return resultstore.Record{}, err
		}
		r, err := n.read(ctx, message)
		switch {
		case errors.Is(err, resultstore.ErrNotFound): // deleted since, or its time is over
		case err == nil && !r.State.Terminal(): // no news
		default:
			return r, err
		}
	}
}

// next returns the next message.
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

// read makes a record of a message.
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
		err = fmt.Errorf("%w: a record for another node", resultstore.ErrMalformed)
	}
	if err != nil {
		return resultstore.Record{}, err
	}
	return r, nil
}

// load loads the record of a task, for as long as ctx and the stream last; if that was too short the message is for the
// next Receive.
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
		default: // many have been given back: the record is found with Load
		}
		return r, ctx.Err()
	}
	return r, err
}

// Close implements [resultstore.Notifications]. It waits for nothing.
func (n *stream) Close(context.Context) error {
	n.end()
	return nil
}

func (n *stream) end() {
	n.stop()
	n.messages.Close()
	n.listener.Close()
	n.store.mu.Lock()
	delete(n.store.streams, n)
	n.store.mu.Unlock()
}
