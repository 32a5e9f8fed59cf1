package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// nodeSilence is how long a node may take to answer. One that takes longer is absent, if the server
// answers then: the server takes minutes to notice a machine that lost its power. The consumer gives
// one look 5 s.
const nodeSilence = 3 * time.Second

// appear makes a node present: it answers from now on. The client library keeps it so after a loss.
func (b *Broker) appear(ctx context.Context, node string) error {
	w := &b.witness
	if _, known := b.node(node); known {
		return nil
	}
	select {
	case w.enter <- struct{}{}:
		defer func() { <-w.enter }()
	case <-ctx.Done():
		return unavailable(ctx)
	case <-b.stop.Done():
		return errClosed()
	}
	if _, known := b.node(node); known {
		return nil
	}
	subject := b.names.presence(node)
	return b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		sub, err := s.NATS.Subscribe(subject, func(m *nats.Msg) {
			_ = m.Respond(nil) // whoever asks asks again
		})
		if err != nil {
			return err
		}
		// Its own answer shows that the server knows of it, and lets it.
		if _, err := s.NATS.RequestWithContext(ctx, subject, nil); err != nil {
			_ = sub.Unsubscribe() // the connection may have gone
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.nodes == nil {
			w.nodes = make(map[string]*nats.Subscription)
		}
		w.nodes[node] = sub
		return nil
	})
}

// node returns by what a node answers, and whether it has noted a start.
func (b *Broker) node(name string) (*nats.Subscription, bool) {
	b.witness.mu.Lock()
	defer b.witness.mu.Unlock()
	sub, known := b.witness.nodes[name]
	return sub, known
}

// NodeState implements [broker.Witness]. The node itself is asked; one that does not answer within
// 3 s is absent. If ctx ends before, it is an error.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	state, err := b.nodeState(ctx, node)
	return state, wrap(err, "state of node", node)
}

func (b *Broker) nodeState(ctx context.Context, node string) (broker.NodeState, error) {
	if err := b.checkNode(node); err != nil {
		return broker.NodeAbsent, err
	}
	answers := false
	err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) (err error) {
		answers, err = ask(ctx, s.NATS, b.names.presence(node))
		return err
	})
	if err != nil {
		return broker.NodeAbsent, err
	}
	if answers {
		return broker.NodePresent, nil
	}
	for {
		st, err := b.openNotes(ctx)
		if err != nil {
			return broker.NodeAbsent, err
		}
		_, err = st.read(ctx, b, leftSubject(node))
		switch {
		case err == nil:
			return broker.NodeLeft, nil
		case errors.Is(err, natsconn.ErrNotFound):
			return broker.NodeAbsent, nil
		case !b.noteAgain(ctx, err):
			return broker.NodeAbsent, err
		}
	}
}

// ask reports whether a subject answers. The error is of one's own connection.
func ask(ctx context.Context, nc *nats.Conn, subject string) (bool, error) {
	silence, cancel := context.WithTimeout(ctx, nodeSilence)
	defer cancel()
	_, err := nc.RequestWithContext(silence, subject, nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case silence.Err() == nil || ctx.Err() != nil:
		return false, err
	}
	flush, cancel := context.WithTimeout(ctx, nodeSilence)
	defer cancel()
	return false, nc.FlushWithContext(flush)
}

// Leave implements [broker.Witness].
func (b *Broker) Leave(ctx context.Context, node string) error {
	return wrap(b.leave(ctx, node), "leave of node", node)
}

func (b *Broker) leave(ctx context.Context, node string) error {
	if err := b.checkNode(node); err != nil {
		return err
	}
	sub, _ := b.node(node)
	if sub == nil {
		return nil
	}
	for {
		st, err := b.openNotes(ctx)
		if err != nil {
			return err
		}
		err = st.write(ctx, b, &nats.Msg{Subject: leftSubject(node)})
		if err == nil {
			return b.silence(ctx, node, sub)
		}
		if !b.noteAgain(ctx, err) {
			return err
		}
	}
}

// silence has a node answer no more, and waits until the server knows.
func (b *Broker) silence(ctx context.Context, node string, sub *nats.Subscription) error {
	_ = sub.Unsubscribe() // the connection may have gone, and the subscription with it
	err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		ctx, cancel := context.WithTimeout(ctx, nodeSilence)
		defer cancel()
		return s.NATS.FlushWithContext(ctx)
	})
	if err != nil {
		return err
	}
	b.witness.mu.Lock()
	defer b.witness.mu.Unlock()
	b.witness.nodes[node] = nil
	return nil
}

func (b *Broker) checkNode(node string) error {
	if !keyset.ValidName(node) {
		return fmt.Errorf("%w: node name %.140q", broker.ErrMalformed, node)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed()
	}
	return nil
}
