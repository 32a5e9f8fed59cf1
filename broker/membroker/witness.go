package membroker

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// keepNotes is how long the notes of a message are kept after the last one, and the word of a node
// that left.
const keepNotes = 24 * time.Hour

// notes are what a Server knows of starts and of nodes. Its mutex may be taken while the Server's
// is held, never the other way round.
type notes struct {
	mu     sync.Mutex
	starts map[noteKey]*noteList
	line   []*noteList // the next one to look at, whether it is too old, is the first
	nodes  map[string]*node
}

type noteKey struct {
	queue, id  string
	generation int
}

type noteList struct {
	key    noteKey
	starts []broker.Start
	latest time.Time
	lined  time.Time // when it was put in line
}

// node is a node that noted a start.
type node struct {
	b    *Broker   // through which it did
	left time.Time // zero: it has not
}

// NoteStart implements [broker.Witness].
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

// JudgeStart implements [broker.Witness].
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
// a start has its connection.
func (b *Broker) NodeState(ctx context.Context, name string) (broker.NodeState, error) {
	if err := checkNode(name); err != nil {
		return broker.NodeAbsent, err
	}
	for {
		if err := b.ready(ctx); err != nil {
			return broker.NodeAbsent, err
		}
		if state, ok := b.look(name); ok {
			return state, nil
		}
	}
}

// look returns the state of a node, unless b has lost its connection and so cannot see it.
func (b *Broker) look(name string) (state broker.NodeState, ok bool) {
	b.s.mu.Lock() // the connections of a server that goes or comes change together
	defer b.s.mu.Unlock()
	return b.s.notes.state(name), b.gate.Load() == connected
}

// Leave implements [broker.Witness].
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

func checkNode(name string) error {
	if keyset.ValidName(name) {
		return nil
	}
	return fmt.Errorf("membroker: node name %.140q: %w", name, broker.ErrMalformed)
}

func (ns *notes) add(b *Broker, queue string, s broker.Start) []broker.Start {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	now := time.Now()
	ns.forgetStarts(now)
	if ns.starts == nil {
		ns.starts, ns.nodes = make(map[noteKey]*noteList), make(map[string]*node)
	}
	switch n := ns.nodes[s.Node]; {
	case n == nil:
		ns.forgetNodes(now)
		ns.nodes[s.Node] = &node{b: b}
	case n.left.IsZero():
		n.b = b
	}
	key := noteKey{queue, s.ID, s.Generation}
	l := ns.starts[key]
	if l == nil {
		l = &noteList{key: key, lined: now}
		ns.starts[key] = l
		ns.line = append(ns.line, l)
	}
	l.latest = now
	var earlier []broker.Start
	l.starts, earlier = broker.AddStart(l.starts, s)
	return earlier
}

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

// forgetStarts drops the notes of which the latest is too old.
func (ns *notes) forgetStarts(now time.Time) {
	for len(ns.line) > 0 && now.Sub(ns.line[0].lined) > keepNotes {
		l := ns.line[0]
		ns.line = ns.line[1:]
		if now.Sub(l.latest) > keepNotes {
			delete(ns.starts, l.key)
			continue
		}
		l.lined = now
		ns.line = append(ns.line, l)
	}
}

// forgetNodes drops nodes that left long ago, and those of closed Brokers: they stay absent.
func (ns *notes) forgetNodes(now time.Time) {
	maps.DeleteFunc(ns.nodes, func(_ string, n *node) bool {
		if n.left.IsZero() {
			return n.b.gate.Load() == closed
		}
		return now.Sub(n.left) > keepNotes
	})
}
