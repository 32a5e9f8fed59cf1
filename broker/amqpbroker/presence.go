package amqpbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// A node that lives answers when somebody asks for it in the stream of starts. Nobody writes
// anything while nobody asks.

// answerWait is how long a node may take to answer. Whoever asks has read its own notes before and
// after that time.
const answerWait = 2 * time.Second

// nodeSign is what is known of a node.
type nodeSign struct {
	left time.Time     // when it said that it ended; zero: it has not
	ask  *question     // that the callers of NodeState wait for
	now  *question     // that is asked
	name string        // of the note that asks it, until that has been read
	seen chan struct{} // closed when the node has answered behind that note; nil: nobody waits
}

// question is an answer that several callers wait for.
type question struct {
	roundTrip
	state broker.NodeState
}

// sign returns what is known of a node, to be changed; w.mu is held.
func (w *witness) sign(node string) *nodeSign {
	s := w.nodes[node]
	if s == nil {
		s = &nodeSign{}
		w.nodes[node] = s
	}
	return s
}

// left notes that a node has ended; w.mu is held. It does not come back: its last answers may be
// late.
func (w *witness) left(node string, at time.Time) {
	w.sign(node).left = at
	for name, s := range w.nodes {
		if !s.left.IsZero() && s.now == nil && s.ask == nil && time.Since(s.left) > noteAge {
			delete(w.nodes, name)
		}
	}
}

// here notes a sign of life; w.mu is held.
func (w *witness) here(node string) {
	if s := w.nodes[node]; s != nil && s.seen != nil && s.name == "" {
		close(s.seen)
		s.seen = nil
	}
}

// call begins to answer for a node, if it is one of this process; w.mu is held.
func (w *witness) call(node, name string) {
	if s := w.nodes[node]; s != nil && s.name == name {
		s.name = ""
	}
	if _, ok := w.own[node]; !ok {
		return
	}
	w.called[node] = struct{}{}
	if !w.answering {
		w.answering = w.log.b.spawn(w.answer)
	}
}

// answer answers as long as somebody asks.
func (w *witness) answer() {
	for {
		n := &note{Kind: noteHere}
		w.mu.Lock()
		for node := range w.called {
			if _, ok := w.own[node]; ok {
				n.Nodes = append(n.Nodes, node)
			}
		}
		clear(w.called)
		if len(n.Nodes) == 0 {
			w.answering = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		n.At = time.Now().UnixMilli()
		ctx, cancel := context.WithTimeout(w.log.b.stop, answerWait) // later it is of no use
		_ = w.log.append(ctx, w.log.name(), n)                       // then the node is absent
		cancel()
	}
}

// NodeState implements [broker.Witness]. It takes 2 s to find that a node is absent.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	state, err := b.witness.state(ctx, node)
	return state, wrap(err, "look for node", node)
}

func (w *witness) state(ctx context.Context, node string) (broker.NodeState, error) {
	if err := w.check(node); err != nil {
		return 0, err
	}
	w.mu.Lock()
	s := w.sign(node)
	q := s.ask
	if q == nil {
		q = &question{roundTrip: roundTrip{done: make(chan struct{})}}
		s.ask = q
		if s.now == nil && !w.log.b.spawn(func() { w.askFor(node) }) {
			w.mu.Unlock()
			return 0, broker.ErrClosed
		}
	}
	w.mu.Unlock()
	select {
	case <-q.done:
		return q.state, q.err
	case <-w.log.b.stop.Done():
		return 0, broker.ErrClosed
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: asking for a node: %w", broker.ErrUnavailable, ctx.Err())
	}
}

func (w *witness) check(node string) error {
	if !keyset.ValidName(node) {
		return fmt.Errorf("%w: node name %.140q", broker.ErrMalformed, node)
	}
	if w.log.b.stop.Err() != nil {
		return broker.ErrClosed
	}
	return nil
}

// askFor asks for a node as long as somebody waits for the answer to a question that was not asked
// yet.
func (w *witness) askFor(node string) {
	for {
		w.mu.Lock()
		s := w.sign(node)
		q := s.ask
		s.ask, s.now = nil, q
		if q == nil {
			if s.left.IsZero() {
				delete(w.nodes, node)
			}
			w.mu.Unlock()
			return
		}
		seen, name := make(chan struct{}), w.log.name()
		s.seen, s.name = seen, name
		w.mu.Unlock()
		q.state, q.err = w.ask(node, name, seen)
		close(q.done)
		wake.Sleep(w.log.b.stop, syncPause) // then nothing can be asked
	}
}

// ask asks for a node once; seen is closed when it answers.
func (w *witness) ask(node, name string, seen <-chan struct{}) (broker.NodeState, error) {
	stop := w.log.b.stop
	if err := w.log.write(stop, &note{Kind: noteAsk, At: time.Now().UnixMilli(), Node: node, Nonce: name}); err != nil {
		return 0, err
	}
	w.mu.Lock()
	left := !w.sign(node).left.IsZero()
	w.mu.Unlock()
	if left {
		return broker.NodeLeft, nil
	}
	late := time.NewTimer(answerWait)
	defer late.Stop()
	select {
	case <-seen:
		return broker.NodePresent, nil
	case <-late.C:
	case <-stop.Done():
	}
	// What the node has answered until now is read before this.
	if err := w.log.sync(stop); err != nil {
		return 0, err
	}
	w.mu.Lock()
	left = !w.sign(node).left.IsZero()
	w.mu.Unlock()
	select {
	case <-seen:
		return broker.NodePresent, nil
	default:
	}
	if left {
		return broker.NodeLeft, nil
	}
	return broker.NodeAbsent, nil
}

// Leave implements [broker.Witness].
func (b *Broker) Leave(ctx context.Context, node string) error {
	return wrap(b.witness.leave(ctx, node), "leave as node", node)
}

func (w *witness) leave(ctx context.Context, node string) error {
	if err := w.check(node); err != nil {
		return err
	}
	w.mu.Lock()
	_, ok := w.own[node]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	if err := w.log.append(ctx, w.log.name(), &note{Kind: noteLeft, At: time.Now().UnixMilli(), Node: node}); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.own, node)
	return nil
}
