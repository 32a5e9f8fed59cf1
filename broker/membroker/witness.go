package membroker

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// noteRetention is the retention of the notes of a message, from the last note on, and of the
// record that a node has left.
const noteRetention = 24 * time.Hour

// notes holds the starts and nodes that a Server has recorded. Its mutex may be taken while the
// Server's mutex is held, never the other way round.
type notes struct {
	mu     sync.Mutex
	starts map[noteKey]*noteList
	byAge  []*noteList // lists in the order in which their age is checked
	nodes  map[string]*node
}

// noteKey names the message whose handler was started.
type noteKey struct {
	queue, id  string
	generation int
}

// noteList holds the notes of one message, oldest first. latest is when the last one was stored.
type noteList struct {
	key    noteKey
	starts []broker.Start
	latest time.Time
	queued time.Time // when it was added to byAge
}

// node is a node that noted a start.
type node struct {
	b    *Broker   // the Broker through which it noted the start
	left time.Time // when it left; zero: it has not
}

// NoteStart implements [broker.Witness]. It stores s in the memory of the Server and returns the
// earlier notes of the message. The node is present from now on while b is connected. It waits only
// for a connection. It takes the queue's mutex, then that of the notes.
//
// Returns ErrMalformed if s or the queue name is not valid, ErrNoQueue if the queue does not exist.
// Returns ErrUnavailable if ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("membroker: queue %.128q: %w", queue, err)
	}
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return nil, err
	}
	q.unlock()
	return b.s.notes.add(b, q.name, s), nil
}

// JudgeStart implements [broker.Witness]. It stores the verdict of s in the note with the nonce of
// s, and does nothing if that note does not exist. It waits only for a connection. It takes the
// queue's mutex, then that of the notes.
//
// Returns ErrMalformed if s or the queue name is not valid, ErrNoQueue if the queue does not exist.
// Returns ErrUnavailable if ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("membroker: queue %.128q: %w", queue, err)
	}
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return err
	}
	q.unlock()
	b.s.notes.judge(q.name, s)
	return nil
}

// NodeState implements [broker.Witness]. A node is present while the Broker through which it noted
// a start is connected. While b itself is not connected, NodeState waits. It takes the Server's
// mutex. Returns ErrMalformed if the name is not valid, ErrUnavailable if ctx ends before a
// connection exists, ErrClosed after Close.
func (b *Broker) NodeState(ctx context.Context, name string) (broker.NodeState, error) {
	if err := checkNode(name); err != nil {
		return broker.NodeAbsent, err
	}
	for {
		if err := b.ready(ctx); err != nil {
			return broker.NodeAbsent, err
		}
		if state, ok := b.nodeStateNow(name); ok {
			return state, nil
		}
	}
}

// nodeStateNow returns the state of a node. ok is false if b is not connected: then state has no
// meaning. It takes the Server's mutex, then that of the notes.
func (b *Broker) nodeStateNow(name string) (state broker.NodeState, ok bool) {
	b.s.mu.Lock() // all connections of a server that goes down or up change together under this mutex
	defer b.s.mu.Unlock()
	return b.s.notes.state(name), b.gate.Load() == connected
}

// Leave implements [broker.Witness]. It records in the memory of the Server that the node has left.
// It does nothing if the node noted no start or has left already. It waits only for a connection.
// It takes the mutex of the notes. Returns ErrMalformed if the name is not valid, ErrUnavailable if
// ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) Leave(ctx context.Context, name string) error {
	if err := checkNode(name); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	ns := &b.s.notes
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n := ns.nodes[name]; n != nil && n.left.IsZero() {
		n.left = time.Now()
	}
	return nil
}

// checkNode returns broker.ErrMalformed if the node name is not valid.
func checkNode(name string) error {
	if naming.ValidName(name) {
		return nil
	}
	return fmt.Errorf("membroker: node name %.140q: %w", name, broker.ErrMalformed)
}

// add stores s as a note of its message and returns the notes that were stored before s. A note
// with the nonce of s is not stored again. s.Node is present from now on while b is connected,
// unless the node has left. It drops notes and nodes that are older than noteRetention. It takes
// ns.mu.
func (ns *notes) add(b *Broker, queue string, s broker.Start) []broker.Start {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	now := time.Now()
	ns.dropOldStarts(now)
	if ns.starts == nil {
		ns.starts, ns.nodes = make(map[noteKey]*noteList), make(map[string]*node)
	}
	switch n := ns.nodes[s.Node]; {
	case n == nil:
		ns.dropOldNodes(now)
		ns.nodes[s.Node] = &node{b: b}
	case n.left.IsZero():
		n.b = b
	}
	key := noteKey{queue, s.ID, s.Generation}
	l := ns.starts[key]
	if l == nil {
		l = &noteList{key: key, queued: now}
		ns.starts[key] = l
		ns.byAge = append(ns.byAge, l)
	}
	l.latest = now
	var earlier []broker.Start
	l.starts, earlier = broker.AddStart(l.starts, s)
	return earlier
}

// judge stores the verdict of s in its note. It does nothing if the note does not exist. It takes
// ns.mu.
func (ns *notes) judge(queue string, s broker.Start) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	l := ns.starts[noteKey{queue, s.ID, s.Generation}]
	if l == nil {
		return
	}
	for i := range l.starts {
		if l.starts[i].Nonce == s.Nonce {
			l.starts[i].Verdict = s.Verdict
		}
	}
}

// state returns the state of a node: absent if it noted no start or its Broker is not connected,
// left if Leave was called, otherwise present. It takes ns.mu.
func (ns *notes) state(name string) broker.NodeState {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	switch n := ns.nodes[name]; {
	case n == nil:
		return broker.NodeAbsent
	case !n.left.IsZero():
		return broker.NodeLeft
	case n.b.gate.Load() != connected:
		return broker.NodeAbsent
	default:
		return broker.NodePresent
	}
}

// dropOldStarts drops the notes of messages whose latest note is older than noteRetention. It
// checks each message once in noteRetention, so notes may stay for up to twice that time. Call it
// with ns.mu held.
func (ns *notes) dropOldStarts(now time.Time) {
	for len(ns.byAge) > 0 && now.Sub(ns.byAge[0].queued) > noteRetention {
		l := ns.byAge[0]
		ns.byAge = ns.byAge[1:]
		if now.Sub(l.latest) > noteRetention {
			delete(ns.starts, l.key)
			continue
		}
		l.queued = now
		ns.byAge = append(ns.byAge, l)
	}
}

// dropOldNodes drops nodes that left more than noteRetention ago, and nodes of closed Brokers,
// which are absent either way. Call it with ns.mu held.
func (ns *notes) dropOldNodes(now time.Time) {
	maps.DeleteFunc(ns.nodes, func(_ string, n *node) bool {
		if n.left.IsZero() {
			return n.b.gate.Load() == closed
		}
		return now.Sub(n.left) > noteRetention
	})
}
