package pushbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// Node is one process's connection to a [Hub]: a [broker.Broker] that can also delay, retry in one
// step and list dead letters. Make one with [Hub.Connect]. Safe for concurrent use.
type Node struct {
	hub    *Hub
	gone   chan struct{} // closed by Close: all deliveries of the node share it as their Lost
	closed bool
	subs   []*subscription
}

var (
	_ broker.Broker       = (*Node)(nil)
	_ broker.Delayer      = (*Node)(nil)
	_ broker.Declarer     = (*Node)(nil)
	_ broker.Retrier      = (*Node)(nil)
	_ broker.DeadLetterer = (*Node)(nil)
)

// Publish implements [broker.Broker]. On an [AtOnce] hub it returns when the task is settled, if a
// worker was free.
func (n *Node) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return n.PublishAt(ctx, queue, m, time.Time{})
}

// PublishAt implements [broker.Delayer]. The hub keeps a delayed message in memory.
func (n *Node) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	handed, err := n.put(queue, m, at)
	if err != nil {
		return fmt.Errorf("pushbroker: publish to %.64q: %w", queue, err)
	}
	if handed == nil {
		return nil
	}
	select {
	case <-handed:
		return nil
	case <-n.gone:
		return fmt.Errorf("pushbroker: publish to %q: %w: %w", queue, broker.ErrIndeterminate, broker.ErrClosed)
	case <-ctx.Done(): // it runs on
		return fmt.Errorf("pushbroker: publish to %q: %w: %w", queue, broker.ErrIndeterminate, context.Cause(ctx))
	}
}

// put adds a message to the hub. The channel, if not nil, is closed when the worker has settled the
// message.
func (n *Node) put(name string, m *broker.Message, at time.Time) (<-chan struct{}, error) {
	if err := check(m); err != nil {
		return nil, err
	}
	q, err := n.lock(name)
	if err != nil {
		return nil, err
	}
	defer n.hub.mu.Unlock()
	it := &item{queue: q, message: m}
	if n.hub.push {
		q.add(it, at)
		return nil, nil
	}
	if len(q.listeners) == 0 {
		return nil, fmt.Errorf("nobody listens: %w", broker.ErrNoQueue)
	}
	handed := make(chan struct{})
	it.handed = handed
	q.add(it, at)
	// no worker is free, or the message is delayed: the hub holds it, and Publish returns
	if it.deliveries == 0 {
		it.handed = nil
		return nil, nil
	}
	return handed, nil
}

// lock locks the hub and returns a queue. With an error the hub is not locked.
func (n *Node) lock(name string) (*queue, error) {
	if task.CheckName(name) != nil {
		return nil, fmt.Errorf("queue name: %w", broker.ErrMalformed)
	}
	n.hub.mu.Lock()
	if n.closed {
		n.hub.mu.Unlock()
		return nil, broker.ErrClosed
	}
	q, ok := n.hub.queues[name]
	if !ok {
		n.hub.mu.Unlock()
		return nil, broker.ErrNoQueue
	}
	return q, nil
}

// check returns an error for an invalid message.
func check(m *broker.Message) error {
	if m == nil || m.Generation < 0 {
		return broker.ErrMalformed
	}
	for name, v := range m.Headers {
		switch v.(type) {
		case string, []byte, bool, int64, float64:
		default:
			return fmt.Errorf("header %q is a %T: %w", name, v, broker.ErrMalformed)
		}
	}
	return broker.CheckFairness(m)
}

// Declare implements [broker.Declarer]. Queues have neither levels nor turns: these are refused
// with [broker.ErrUnsupported].
func (n *Node) Declare(_ context.Context, qs ...broker.Queue) error {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, q := range qs {
		switch {
		case task.CheckName(q.Name) != nil:
			return fmt.Errorf("pushbroker: declare %.64q: %w", q.Name, broker.ErrMalformed)
		case n.closed:
			return fmt.Errorf("pushbroker: %w", broker.ErrClosed)
		case len(q.Levels) > 0:
			return fmt.Errorf("pushbroker: priority levels of queue %q: %w", q.Name, broker.ErrUnsupported)
		}
		if err := broker.RefuseFair(q); err != nil {
			return fmt.Errorf("pushbroker: %w", err)
		}
		n.hub.ensure(q.Name)
	}
	return nil
}

// Subscribe implements [broker.Broker]. Leases do not exist, because a node in this process cannot
// fall silent.
func (n *Node) Subscribe(_ context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if err := n.Declare(context.Background(), broker.Queue{Name: queue}); err != nil {
		return nil, err
	}
	if err := broker.RefuseBounds(queue, o); err != nil {
		return nil, fmt.Errorf("pushbroker: %w", err)
	}
	q, err := n.lock(queue)
	if err != nil {
		return nil, fmt.Errorf("pushbroker: %w", err)
	}
	defer n.hub.mu.Unlock()
	s := &subscription{node: n, queue: q, limit: o.Prefetch, unsettled: make(map[*delivery]struct{})}
	n.subs = append(n.subs, s)
	q.listeners = append(q.listeners, s)
	q.place()
	return s, nil
}

// Retry implements [broker.Retrier]: under the hub's lock both happen or neither.
func (n *Node) Retry(_ context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.node.hub != n.hub {
		return fmt.Errorf("pushbroker: retry of a %T, which is not of this hub: %w", d, broker.ErrUnsupported)
	}
	if err := check(next.Message); err != nil {
		return fmt.Errorf("pushbroker: retry: %w", err)
	}
	q, err := n.lock(next.Queue)
	if err != nil {
		return fmt.Errorf("pushbroker: retry to %.64q: %w", next.Queue, err)
	}
	defer n.hub.mu.Unlock()
	return own.settle(func() { q.add(&item{queue: q, message: next.Message}, next.At) })
}

// Close implements [broker.Broker]. It returns all messages of the node to the hub, delivered or
// not.
func (n *Node) Close(context.Context) error {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	close(n.gone)
	for _, s := range n.subs {
		s.close()
	}
	for _, s := range n.subs {
		var back []*item
		for d := range s.unsettled {
			d.state = lost
			d.item.leave()
			back = append(back, d.item)
		}
		clear(s.unsettled)
		s.queue.giveBack(back...)
	}
	n.subs = nil
	return nil
}
