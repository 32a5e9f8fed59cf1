package liveness

import (
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// Node is what an observer knows of a producer or consumer.
type Node struct {
	ID     string
	Online bool
	// Left: it has ended by its own word. False of one that is online, or only silent.
	Left bool
	// Since is when it came or went, and Heard when it was last heard, both on the observer's clock.
	Since, Heard time.Time
	// Told is what the node's own clock said at that event. It is for people: no decision rests on it.
	Told time.Time
	// Worker is what its last event said, and Fields the further fields of its last heartbeat, not to be changed.
	Worker events.Worker
	Fields map[string]any
}

// entry is a node in the table.
type entry struct {
	Node
	deadline time.Time // offline from then on unless it is heard
	told     bool      // somebody was told of it,
	toldUp   bool      // and that it was online
	waiting  bool      // it is in changes
}

// table keeps nodes. It knows no goroutines and no clock.
type table struct {
	after, forget time.Duration
	most          int

	nodes   map[string]*entry
	offline int      // how many of them are
	changes []string // ids of those of whom somebody is to be told
	refused uint64
}

func newTable(c *Config) table {
	return table{after: c.OfflineAfter, forget: c.ForgetAfter, most: c.MaxNodes, nodes: make(map[string]*entry)}
}

// hear takes an event in and reports whether a node has come or gone.
func (t *table) hear(e *events.Event, now time.Time) bool {
	if e.NodeID == "" {
		return false
	}
	n := t.nodes[e.NodeID]
	if e.Type == events.WorkerOffline {
		if e.Worker != nil && e.Worker.Observer != "" && e.Worker.Observer != e.NodeID {
			return false // what another observer believes
		}
		if n == nil || !n.Online {
			return false
		}
		n.take(e, now)
		n.Left = true
		t.set(n, false, now)
		return true
	}
	if n == nil {
		if n = t.add(e.NodeID); n == nil {
			t.refused++
			return false
		}
	}
	n.take(e, now)
	n.Left = false
	n.deadline = now.Add(t.window(n))
	if n.Online {
		return false
	}
	t.offline--
	t.set(n, true, now)
	return true
}

// take keeps what an event says.
func (n *entry) take(e *events.Event, now time.Time) {
	n.Heard, n.Told = now, e.Time
	if e.Worker != nil {
		n.Worker = *e.Worker
	}
	if e.Type == events.WorkerHeartbeat {
		n.Fields = e.Fields
	}
}

// window is how long a node may be silent.
func (t *table) window(n *entry) time.Duration {
	return max(t.after, 2*min(n.Worker.Freq, MaxFreq))
}

// add makes a node, which is offline until it is set; nil when there is no room.
func (t *table) add(id string) *entry {
	if len(t.nodes) >= t.most && !t.evict() {
		return nil
	}
	n := &entry{Node: Node{ID: id, Worker: events.Worker{Load: -1, Mem: -1}}}
	t.nodes[id] = n
	t.offline++
	return n
}

// evict removes the node that has been gone for longest.
func (t *table) evict() bool {
	if t.offline == 0 {
		return false
	}
	var oldest *entry
	for _, n := range t.nodes {
		if !n.Online && (oldest == nil || n.Since.Before(oldest.Since)) {
			oldest = n
		}
	}
	t.remove(oldest)
	return true
}

func (t *table) remove(n *entry) {
	delete(t.nodes, n.ID)
	t.offline--
	if n.waiting { // so that there are never more changes than nodes
		t.changes = slices.DeleteFunc(t.changes, func(id string) bool { return id == n.ID })
	}
}

// set makes a node online or offline and notes that somebody is to be told.
func (t *table) set(n *entry, online bool, now time.Time) {
	if n.Online && !online {
		t.offline++
	}
	n.Online, n.Since = online, now
	if !n.waiting {
		n.waiting = true
		t.changes = append(t.changes, n.ID)
	}
}

// sweep makes those offline that are silent for too long and returns them, sorted by ID, and the first deadline of the
// others; zero for none. Those that have been gone for long are forgotten.
func (t *table) sweep(now time.Time) (gone []Node, next time.Time) {
	var silent []*entry
	for _, n := range t.nodes {
		switch {
		case !n.Online:
			if now.Sub(n.Since) >= t.forget {
				t.remove(n)
			}
		case now.Before(n.deadline):
			if next.IsZero() || n.deadline.Before(next) {
				next = n.deadline
			}
		default:
			silent = append(silent, n)
		}
	}
	slices.SortFunc(silent, func(a, b *entry) int { return strings.Compare(a.ID, b.ID) })
	for _, n := range silent {
		t.set(n, false, now)
		gone = append(gone, n.Node)
	}
	return gone, next
}

// excuse lets the time of silence of everybody begin anew.
func (t *table) excuse(now time.Time) {
	for _, n := range t.nodes {
		n.deadline = now.Add(t.window(n))
	}
}

// change returns the next node that is not as it was told of last.
func (t *table) change() (Node, bool) {
	for len(t.changes) > 0 {
		n := t.nodes[t.changes[0]]
		t.changes = t.changes[1:]
		n.waiting = false
		if n.told && n.toldUp == n.Online {
			continue
		}
		n.told, n.toldUp = true, n.Online
		return n.Node, true
	}
	t.changes = nil
	return Node{}, false
}

func (t *table) all() []Node {
	ns := make([]Node, 0, len(t.nodes))
	for _, n := range t.nodes {
		ns = append(ns, n.Node)
	}
	slices.SortFunc(ns, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return ns
}
