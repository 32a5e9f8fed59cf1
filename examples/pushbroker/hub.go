package pushbroker

import (
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Hub connects the nodes of one program. Make one with [AtOnce] or [Push]. Safe for concurrent use.
type Hub struct {
	push bool // into inboxes; else only into the hands of a worker that waits

	mu     sync.Mutex // guards everything below, of all queues, nodes, subscriptions and deliveries
	queues map[string]*queue
}

// AtOnce makes a Hub on which a task runs inside its Publish.
func AtOnce() *Hub { return &Hub{queues: make(map[string]*queue)} }

// Push makes a Hub that assigns each message to a node when it is published.
func Push() *Hub { return &Hub{push: true, queues: make(map[string]*queue)} }

// Connect returns a new node, as another process would be one.
func (h *Hub) Connect() *Node {
	return &Node{hub: h, gone: make(chan struct{})}
}

// queue is a name under which subscriptions listen.
type queue struct {
	hub       *Hub
	listeners []*subscription // open subscriptions; the one chosen last is the last
	backlog   []*item         // that no node has room for, in the order in which they are to go out
	dead      []*broker.Dead  // oldest first
}

// item is a message on its way. It is in one place: a backlog, an inbox, a delivery, or a timer.
type item struct {
	queue      *queue
	message    *broker.Message
	deliveries int
	// closed at the end of the first delivery; nil afterwards, and if no Publish waits
	handed chan struct{}
}

// ensure returns the queue of a name that was checked.
func (h *Hub) ensure(name string) *queue {
	q, ok := h.queues[name]
	if !ok {
		q = &queue{hub: h}
		h.queues[name] = q
	}
	return q
}

// add takes a message that may be seen at the given time.
func (q *queue) add(it *item, at time.Time) {
	if wait := time.Until(at); wait > 0 {
		time.AfterFunc(wait, func() {
			q.hub.mu.Lock()
			defer q.hub.mu.Unlock()
			q.add(it, at) // wait again, because a timer limits a wait of centuries
		})
		return
	}
	q.backlog = append(q.backlog, it)
	q.place()
}

// giveBack takes items that were out already; they go first.
func (q *queue) giveBack(items ...*item) {
	q.backlog = slices.Concat(items, q.backlog)
	q.place()
}

// place assigns the backlog to nodes with room. It is called after each change that may have made
// room.
func (q *queue) place() {
	for len(q.backlog) > 0 {
		s := q.choose()
		if s == nil {
			return
		}
		s.inbox = append(s.inbox, q.backlog[0])
		q.backlog = q.backlog[1:]
		s.serve()
	}
}

// choose returns the subscription with room that holds the fewest messages. Of equal ones it
// returns the one that was chosen least recently, and nil if none has room.
func (q *queue) choose() *subscription {
	best := -1
	for i, s := range q.listeners {
		if s.room() && (best < 0 || s.held() < q.listeners[best].held()) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	s := q.listeners[best]
	q.listeners = append(slices.Delete(q.listeners, best, best+1), s)
	return s
}

// leave notifies the caller in Publish that the first delivery has ended: the item is settled, or
// the hub holds it again.
func (it *item) leave() {
	if it.handed != nil {
		close(it.handed)
		it.handed = nil
	}
}
