package liveness

import (
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// Node holds the observed state of a producer or consumer.
type Node struct {
	ID     string
	Online bool
	// Left reports that the node itself announced its end. It is false for a node that is online or
	// only silent.
	Left bool
	// Since is the time of the last change of Online. Heard is the time of the last event of the node.
	// Both are by the observer's clock.
	Since, Heard time.Time
	// Told is the time in that event, by the node's own clock. It is information only: no decision
	// uses it.
	Told time.Time
	// Worker holds the data of the node's last event, and Fields the further fields of its last
	// heartbeat. They must not be changed.
	Worker events.Worker
	Fields map[string]any
}

// entry is a node in the table.
type entry struct {
	Node
	deadline       time.Time // the node counts as offline then, unless an event arrives earlier
	reported       bool      // OnChange was called for it
	reportedOnline bool      // the last call said that it was online
	waiting        bool      // it is in changes
}

// table holds the nodes. It receives all times as arguments. Call its methods with Observer.mu
// held.
type table struct {
	after, forget time.Duration
	most          int

	nodes   map[string]*entry
	offline int      // number of offline nodes
	changes []string // ids of the nodes for which OnChange must be called
	refused uint64
}

// newTable returns an empty table with the limits of c.
func newTable(c *Config) table {
	return table{after: c.OfflineAfter, forget: c.ForgetAfter, most: c.MaxNodes, nodes: make(map[string]*entry)}
}

// apply applies an event to its node, which it adds if needed, and reports whether the node came
// online or went offline. Any event of a node, except worker-offline, makes the node online and
// begins its deadline again. Worker-offline of the node itself makes it offline and sets Left. Call
// it with Observer.mu held.
//
// Worker-offline of another observer, of an unknown or offline node, and events without a node id
// are ignored. If the table is full of online nodes it counts a refused event.
func (t *table) apply(e *events.Event, now time.Time) bool {
	if e.NodeID == "" {
		return false
	}
	n := t.nodes[e.NodeID]
	if e.Type == events.WorkerOffline {
		if e.Worker != nil && e.Worker.Observer != "" && e.Worker.Observer != e.NodeID {
			return false // another observer's view
		}
		if n == nil || !n.Online {
			return false
		}
		n.update(e, now)
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
	n.update(e, now)
	n.Left = false
	n.deadline = now.Add(t.window(n))
	if n.Online {
		return false
	}
	t.offline--
	t.set(n, true, now)
	return true
}

// update stores the data of an event in the node: the times, the Worker if the event has one, and,
// of a heartbeat, the further fields. Call it with Observer.mu held.
func (n *entry) update(e *events.Event, now time.Time) {
	n.Heard, n.Told = now, e.Time
	if e.Worker != nil {
		n.Worker = *e.Worker
	}
	if e.Type == events.WorkerHeartbeat {
		n.Fields = e.Fields
	}
}

// window returns the time for which a node may be silent: OfflineAfter, or twice the node's
// heartbeat interval if that is longer. An interval counts as MaxFreq at most.
func (t *table) window(n *entry) time.Duration {
	return max(t.after, 2*min(n.Worker.Freq, MaxFreq))
}

// add adds a node, which is offline until set is called. If the table is full it removes the node
// that has been offline for longest. It returns nil if all are online. Call it with Observer.mu
// held.
func (t *table) add(id string) *entry {
	if len(t.nodes) >= t.most && !t.evict() {
		return nil
	}
	n := &entry{Node: Node{ID: id, Worker: events.Worker{Load: -1, Mem: -1}}}
	t.nodes[id] = n
	t.offline++
	return n
}

// evict removes the node that has been offline for longest. It returns false if all nodes are
// online. Call it with Observer.mu held.
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

// remove removes an offline node, and its waiting call of OnChange: that change is not reported.
// Call it with Observer.mu held.
func (t *table) remove(n *entry) {
	delete(t.nodes, n.ID)
	t.offline--
	if n.waiting { // keeps changes shorter than nodes
		t.changes = slices.DeleteFunc(t.changes, func(id string) bool { return id == n.ID })
	}
}

// set marks a node online or offline, since now, and queues a call of OnChange. It counts a node
// that goes offline in t.offline. For a node that comes online the caller corrects that number.
// Call it with Observer.mu held.
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

// sweep marks the nodes offline whose deadline has passed and returns them, sorted by ID. It also
// returns the first deadline of the other online nodes, or the zero time. It removes nodes that
// have been offline for ForgetAfter. Call it with Observer.mu held.
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

// resetDeadlines gives every node a new deadline, counted from now. Call it with Observer.mu held.
func (t *table) resetDeadlines(now time.Time) {
	for _, n := range t.nodes {
		n.deadline = now.Add(t.window(n))
	}
}

// change returns the next node whose state differs from the last reported one, and marks it as
// reported. It removes it and unchanged nodes before it from t.changes. ok, the second result, is
// false if no node has changed. Call it with Observer.mu held.
func (t *table) change() (Node, bool) {
	for len(t.changes) > 0 {
		n := t.nodes[t.changes[0]]
		t.changes = t.changes[1:]
		n.waiting = false
		if n.reported && n.reportedOnline == n.Online {
			continue
		}
		n.reported, n.reportedOnline = true, n.Online
		return n.Node, true
	}
	t.changes = nil
	return Node{}, false
}

// all returns copies of all nodes, sorted by ID. Call it with Observer.mu held.
func (t *table) all() []Node {
	ns := make([]Node, 0, len(t.nodes))
	for _, n := range t.nodes {
		ns = append(ns, n.Node)
	}
	slices.SortFunc(ns, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return ns
}
