package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// nodeTimeout limits the time that a node may take to answer. A node without an answer is absent if
// the server answers then, because the server itself needs minutes to notice a machine without
// power. The consumer allows 5 s for one question.
const nodeTimeout = 3 * time.Second

// makePresent makes this process answer for a node from now on, and checks that the server
// delivers the questions. It waits for the server. The client library restores the subscription
// after a lost connection. It does nothing if the node noted a start before, even if it has left
// since.
//
// Returns ErrUnavailable if ctx ends while another call does this, ErrClosed after Close, or an
// error of the client. It takes the mutex of b.witness.
func (b *Broker) makePresent(ctx context.Context, node string) error {
	w := &b.witness
	if _, known := b.nodeSubscription(node); known {
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
	if _, known := b.nodeSubscription(node); known {
		return nil
	}
	subject := b.names.presence(node)
	return b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		sub, err := s.NATS.Subscribe(subject, func(m *nats.Msg) {
			_ = m.Respond(nil) // after an error the asking process asks again
		})
		if err != nil {
			return err
		}
		// The process's own answer shows that the server knows and permits the subscription.
		if _, err := s.NATS.RequestWithContext(ctx, subject, nil); err != nil {
			_ = sub.Unsubscribe() // the connection may be lost
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

// nodeSubscription returns the subscription with which a node answers, nil if it has left, and
// whether the node has noted a start. It takes b.witness.mu.
func (b *Broker) nodeSubscription(name string) (*nats.Subscription, bool) {
	b.witness.mu.Lock()
	defer b.witness.mu.Unlock()
	sub, known := b.witness.nodes[name]
	return sub, known
}

// NodeState implements [broker.Witness]. It asks the node itself and waits. A node that answers is
// NodePresent. A node that does not answer within 3 s is NodeLeft if it has called Leave, otherwise
// NodeAbsent. Returns ErrMalformed if the name is not valid, ErrClosed after Close, and an error if
// ctx ends earlier or the server cannot be asked.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	state, err := b.nodeState(ctx, node)
	return state, wrap(err, "state of node", node)
}

// nodeState asks a node whether it is present, and blocks for its answer for at most nodeTimeout.
// For a node without an answer it reads from the stream of notes whether the node has left in
// order; else the node is absent. It takes b.mu, but not while it waits.
//
// Returns an error if this process cannot ask or read; the state means nothing then. The error is
// ErrMalformed or ErrClosed of the port, the error of ctx, or one of the client.
func (b *Broker) nodeState(ctx context.Context, node string) (broker.NodeState, error) {
	if err := b.checkNode(node); err != nil {
		return broker.NodeAbsent, err
	}
	present := false
	err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) (err error) {
		present, err = answers(ctx, s.NATS, b.names.presence(node))
		return err
	})
	if err != nil {
		return broker.NodeAbsent, err
	}
	if present {
		return broker.NodePresent, nil
	}
	for {
		st, err := b.ensureNoteStore(ctx)
		if err != nil {
			return broker.NodeAbsent, err
		}
		_, err = st.read(ctx, b, leftSubject(node))
		switch {
		case err == nil:
			return broker.NodeLeft, nil
		case errors.Is(err, natsconn.ErrNotFound):
			return broker.NodeAbsent, nil
		case !b.retryNotes(ctx, err):
			return broker.NodeAbsent, err
		}
	}
}

// answers reports whether a process answers requests on the subject within nodeTimeout. It
// returns false at once if the server knows no such process. It returns an error if ctx ends or
// this process's own connection does not work.
func answers(ctx context.Context, nc *nats.Conn, subject string) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	_, err := nc.RequestWithContext(limited, subject, nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case limited.Err() == nil || ctx.Err() != nil:
		return false, err
	}
	flush, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return false, nc.FlushWithContext(flush)
}

// Leave implements [broker.Witness]. It stores that the node has left, for 24 h, waits for the
// confirmation, and stops answering for it. It does nothing for a node that noted no start in this
// Broker. Returns ErrMalformed if the name is not valid, ErrClosed after Close. After an error
// Leave may be called again.
func (b *Broker) Leave(ctx context.Context, node string) error {
	return wrap(b.leave(ctx, node), "leave of node", node)
}

// leave stores that the node has left, for 24 h, and stops answering for it. It waits for the
// server, and repeats while that is busy. It does nothing for a node that noted no start here or
// has left. After an error Leave may be called again.
//
// Returns ErrMalformed if the name of the node is not valid, ErrClosed after Close. It takes b.mu
// and b.witness.mu, but holds neither while it waits.
func (b *Broker) leave(ctx context.Context, node string) error {
	if err := b.checkNode(node); err != nil {
		return err
	}
	sub, _ := b.nodeSubscription(node)
	if sub == nil {
		return nil
	}
	for {
		st, err := b.ensureNoteStore(ctx)
		if err != nil {
			return err
		}
		err = st.write(ctx, b, &nats.Msg{Subject: leftSubject(node)})
		if err == nil {
			return b.stopAnswering(ctx, node, sub)
		}
		if !b.retryNotes(ctx, err) {
			return err
		}
	}
}

// stopAnswering ends sub, with which this process answers for a node, and waits until the server
// knows that. It records that the node has left. After an error the node no longer answers but is
// not recorded as left: Leave may be called again. It takes b.witness.mu.
func (b *Broker) stopAnswering(ctx context.Context, node string, sub *nats.Subscription) error {
	_ = sub.Unsubscribe() // the connection may be lost, and the subscription with it
	err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
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

// checkNode returns ErrMalformed if the node name is not valid, ErrClosed after Close. It takes
// b.mu.
func (b *Broker) checkNode(node string) error {
	if !naming.ValidName(node) {
		return fmt.Errorf("%w: node name %.140q", broker.ErrMalformed, node)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed()
	}
	return nil
}
