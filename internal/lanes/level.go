package lanes

import (
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/receive"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// Level holds the deliveries of one priority level that Receive has not returned. Make one with
// [NewLevel]. Not safe for concurrent use.
type Level[T any] struct {
	lanes []*Lane[T]
	turns laneTurns
}

// NewLevel returns an empty Level: with [Count] lanes if the queue is fair, otherwise with one.
func NewLevel[T any](fair bool) *Level[T] {
	v := &Level[T]{lanes: make([]*Lane[T], Width(fair))}
	for i := range v.lanes {
		v.lanes[i] = &Lane[T]{fair: fair}
	}
	return v
}

// Width returns the number of lanes of a level: [Count] if the queue is fair, otherwise 1.
func Width(fair bool) int {
	if fair {
		return Count
	}
	return 1
}

// Lane returns lane i, counted from 0.
func (v *Level[T]) Lane(i int) *Lane[T] { return v.lanes[i] }

// Len returns the number of deliveries.
func (v *Level[T]) Len() (n int) {
	for _, lane := range v.lanes {
		n += lane.Len()
	}
	return n
}

// Pop removes the next delivery and returns it, or returns nil if none is held.
func (v *Level[T]) Pop() *T {
	if len(v.lanes) == 1 {
		return v.lanes[0].Pop()
	}
	lane, ok := v.turns.next(func(lane int) bool { return v.lanes[lane].Len() > 0 })
	if !ok {
		return nil
	}
	return v.lanes[lane].Pop()
}

// All returns the deliveries, the next one first. The slice is valid until the next call of another
// method.
func (v *Level[T]) All() []*T {
	if len(v.lanes) == 1 {
		return v.lanes[0].All()
	}
	var rest [Count][]*T
	for i, lane := range v.lanes {
		rest[i] = lane.All()
	}
	var all []*T
	for turns := v.turns; ; { // a copy: no turn is used
		lane, ok := turns.next(func(lane int) bool { return len(rest[lane]) > 0 })
		if !ok {
			return all
		}
		all = append(all, rest[lane][0])
		rest[lane] = rest[lane][1:]
	}
}

// Lane holds the deliveries of one lane. Of a fair queue they come in turns over their keys,
// otherwise in their order.
type Lane[T any] struct {
	fair   bool
	line   receive.Held[T]
	keys   turns.Turns[*T]
	pushed uint64 // number of deliveries that were added to keys
}

// Len returns the number of deliveries.
func (l *Lane[T]) Len() int {
	if l.fair {
		return l.keys.Len()
	}
	return l.line.Len()
}

// All returns the deliveries, the next one first. The slice is valid until the next call of another
// method.
func (l *Lane[T]) All() []*T {
	if l.fair {
		return slices.Collect(l.keys.All())
	}
	return l.line.All()
}

// Push adds a delivery of the message m.
func (l *Lane[T]) Push(d *T, m *broker.Message) {
	if !l.fair {
		l.line.Push(d)
		return
	}
	l.pushed++
	l.keys.Push(m.Key, m.Weight, l.pushed, d)
}

// Pop removes the next delivery and returns it, or returns nil if none is held.
func (l *Lane[T]) Pop() *T {
	if !l.fair {
		return l.line.Pop()
	}
	if e := l.keys.Pop(); e != nil {
		return e.Item
	}
	return nil
}

// TakeAll removes all deliveries and returns them, the next one first.
func (l *Lane[T]) TakeAll() []*T {
	if !l.fair {
		return l.line.TakeAll()
	}
	all := l.All()
	l.keys = turns.Turns[*T]{}
	return all
}
