package amqpbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// A node that is alive answers a question for it in the stream of starts. While no process asks, no
// node writes.

// answerWait limits the time that a node may take to answer. The asking process reads the stream up
// to its own question before it starts to wait, and up to the end afterwards.
const answerWait = 2 * time.Second

// nodeEntry holds the state of a node that this process knows from the notes that it has read.
type nodeEntry struct {
	left   time.Time     // when it ended in order; zero: it has not
	ask    *question     // the next question, for which callers of NodeState wait
	now    *question     // the question that is being asked
	noteID string        // id of the note that asks it, until that note was read
	seen   chan struct{} // closed when the node has answered after that note; nil: no goroutine waits
}

// question is the answer about a node, for which several callers wait.
type question struct {
	roundTrip
	state broker.NodeState
}

// entry returns the entry of a node and creates it if necessary. Call it with w.mu held.
func (w *witness) entry(node string) *nodeEntry {
	s := w.nodes[node]
	if s == nil {
		s = &nodeEntry{}
		w.nodes[node] = s
	}
	return s
}

// recordLeave records that a node ended in order. It also drops entries of nodes that ended more
// than noteAge ago and about which no question is open. Answers of the node that arrive later do
// not change the record. Call it with w.mu held.
func (w *witness) recordLeave(node string, at time.Time) {
	w.entry(node).left = at
	for name, s := range w.nodes {
		if !s.left.IsZero() && s.now == nil && s.ask == nil && time.Since(s.left) > noteAge {
			delete(w.nodes, name)
		}
	}
}

// recordAnswer records a sign of life of a node, if a question is waiting for one and its note was
// read before. It wakes the goroutine in ask by closing seen. Call it with w.mu held.
func (w *witness) recordAnswer(node string) {
	if s := w.nodes[node]; s != nil && s.seen != nil && s.noteID == "" {
		close(s.seen)
		s.seen = nil
	}
}

// recordQuestion handles the note with the id name, which asks for a node. If the question is this
// process's own, later answers count from now on. If this process answers for the node,
// recordQuestion adds the node to w.asked and starts answerLoop, unless that runs. Call it with
// w.mu held.
func (w *witness) recordQuestion(node, name string) {
	if s := w.nodes[node]; s != nil && s.noteID == name {
		s.noteID = ""
	}
	if _, ok := w.own[node]; !ok {
		return
	}
	w.asked[node] = struct{}{}
	if !w.answering {
		w.answering = w.log.b.spawn(w.answerLoop)
	}
}

// answerLoop writes notes that answer for the nodes of this process that were asked for. It waits
// up to answerWait for the confirmation of each note and ignores errors: the node counts as absent
// then. It returns when no question is left. It takes w.mu, but not while it waits.
func (w *witness) answerLoop() {
	for {
		n := &note{Kind: noteAlive}
		w.mu.Lock()
		for node := range w.asked {
			if _, ok := w.own[node]; ok {
				n.Nodes = append(n.Nodes, node)
			}
		}
		clear(w.asked)
		if len(n.Nodes) == 0 {
			w.answering = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		n.At = time.Now().UnixMilli()
		ctx, cancel := context.WithTimeout(w.log.b.stop, answerWait) // a later answer is useless
		// after an error the node counts as absent
		_ = w.log.append(ctx, w.log.newNoteID(), n)
		cancel()
	}
}

// NodeState implements [broker.Witness]. It asks the node through the stream of starts and blocks
// until the answer is known. It takes 2 s to find that a node is absent. Returns ErrUnavailable if
// ctx ends first, ErrMalformed for a malformed name, ErrClosed after Close. It also returns an
// error if the stream cannot be written or read.
func (b *Broker) NodeState(ctx context.Context, node string) (broker.NodeState, error) {
	state, err := b.witness.nodeState(ctx, node)
	return state, wrap(err, "get the state of node", node)
}

// nodeState asks a node over the stream of notes whether it is present, and blocks until the answer
// is known: present, left in order, or absent because it did not answer in time. Callers at the
// same time share one question, which the goroutine of askLoop asks. It takes w.mu, but not while
// it waits.
//
// Returns ErrUnavailable if ctx ends first, ErrMalformed for a malformed name, ErrClosed after
// Close, and errors of the stream.
func (w *witness) nodeState(ctx context.Context, node string) (broker.NodeState, error) {
	if err := w.checkNode(node); err != nil {
		return 0, err
	}
	w.mu.Lock()
	s := w.entry(node)
	q := s.ask
	if q == nil {
		q = &question{roundTrip: roundTrip{done: make(chan struct{})}}
		s.ask = q
		if s.now == nil && !w.log.b.spawn(func() { w.askLoop(node) }) {
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
		return 0, fmt.Errorf("%w: no answer about the node: %w", broker.ErrUnavailable, ctx.Err())
	}
}

// checkNode returns ErrMalformed if the node name is not valid, ErrClosed after Close.
func (w *witness) checkNode(node string) error {
	if !naming.ValidName(node) {
		return fmt.Errorf("%w: node name %.140q", broker.ErrMalformed, node)
	}
	if w.log.b.stop.Err() != nil {
		return broker.ErrClosed
	}
	return nil
}

// askLoop asks for a node while callers of nodeState wait for a question that was not asked yet. It
// passes each answer or error to the callers. It pauses for syncPause between two questions. At the
// end it drops the entry of the node, unless the node has left in order. It takes w.mu, but not
// while it waits.
func (w *witness) askLoop(node string) {
	for {
		w.mu.Lock()
		s := w.entry(node)
		q := s.ask
		s.ask, s.now = nil, q
		if q == nil {
			if s.left.IsZero() {
				delete(w.nodes, node)
			}
			w.mu.Unlock()
			return
		}
		seen, name := make(chan struct{}), w.log.newNoteID()
		s.seen, s.noteID = seen, name
		w.mu.Unlock()
		q.state, q.err = w.ask(node, name, seen)
		close(q.done)
		wake.Sleep(w.log.b.stop, syncPause) // after Close the next question fails at once
	}
}

// ask asks for a node once. It blocks until this process has read its question back, and then for
// up to answerWait. name is the id of the note that asks. seen is closed when the node answers. It
// takes w.mu, but not while it waits.
//
//   - The node has answered: NodePresent.
//   - A note says that the node ended in order: NodeLeft.
//   - Neither, after all notes were read once more: NodeAbsent.
//
// Returns the error that prevents an answer.
func (w *witness) ask(node, name string, seen <-chan struct{}) (broker.NodeState, error) {
	stop := w.log.b.stop
	if err := w.log.writeAndRead(stop, &note{Kind: noteAsk, At: time.Now().UnixMilli(), Node: node, Nonce: name}); err != nil {
		return 0, err
	}
	w.mu.Lock()
	left := !w.entry(node).left.IsZero()
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
	// This reads all answers that the node has written until now.
	if err := w.log.sync(stop); err != nil {
		return 0, err
	}
	w.mu.Lock()
	left = !w.entry(node).left.IsZero()
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

// Leave implements [broker.Witness]. It stores a note that the node ended in order and waits for
// the confirmation. It does nothing for a node that noted no start in this Broker. Returns
// ErrMalformed for a malformed name, ErrClosed after Close, and the error of the write. Even after
// an error of the write the note may be stored.
func (b *Broker) Leave(ctx context.Context, node string) error {
	return wrap(b.witness.leave(ctx, node), "leave as node", node)
}

// leave stores on the server that the node ended in order: it appends a note to the stream of notes
// and waits for the confirmation, at most until ctx ends. From then on this process no longer tells
// others that the node is present. After an error it still does, although the note may be stored.
//
// Returns nil, and does nothing, if the node noted no start in this process. Returns the errors of
// checkNode and append. It takes w.mu, but does not hold it while it waits.
func (w *witness) leave(ctx context.Context, node string) error {
	if err := w.checkNode(node); err != nil {
		return err
	}
	w.mu.Lock()
	_, ok := w.own[node]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	if err := w.log.append(ctx, w.log.newNoteID(), &note{Kind: noteLeft, At: time.Now().UnixMilli(), Node: node}); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.own, node)
	return nil
}
