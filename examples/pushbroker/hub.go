package pushbroker

import (
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Hub is what the nodes of one program share. Make one with [AtOnce] or [Push]. Its methods may be called from any
// goroutine.
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
	listeners []*subscription // open ones; who was chosen last stands last
	backlog   []*item         // that no node has room for, in the order in which they are to go out
	dead      []*broker.Dead  // oldest first
}

// item is a message on its way. It is in one place: a backlog, an inbox, a delivery, or a timer.
type item struct {
	queue      *queue
	message    *broker.Message
	deliveries int
	handed     chan struct{} // closed when it leaves its first delivery; nil once it has, and where nobody waits for that
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
			q.add(it, at) // once more, because a wait of centuries is cut to what a timer can do
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

// place hands the backlog to the nodes that have room. It is called after every change that may have made some.
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

// choose returns the subscription with room that holds the least, of equals the one whose last turn is longest ago; nil
// for none.
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

// leave tells who waits in Publish that the item's first delivery is over: it is settled, or the hub has it back.
func (it *item) leave() {
	if it.handed != nil {
		close(it.handed)
		it.handed = nil
	}
}
