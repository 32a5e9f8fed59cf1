package redisbroker

import (
	"slices"

	"github.com/swarmiji/swarmiji/internal/floor"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// unread holds the deliveries that Receive has not returned, by level: in their order, or in the
// turns of their fairness keys if the queue is fair. The subscription's mutex guards it.
type unread struct {
	levels *levels
	lists  [][]*delivery            // of a plain queue
	turns  []turns.Turns[*delivery] // of a fair queue
	n      int
	floor  floor.Floor
}

// newUnread returns an empty one for the levels of a queue.
func newUnread(l *levels, f floor.Floor) unread {
	if l.fair {
		return unread{levels: l, turns: make([]turns.Turns[*delivery], l.number()), floor: f}
	}
	return unread{levels: l, lists: make([][]*delivery, l.number()), floor: f}
}

// add adds a delivery at the end of its level, or of its key there.
func (u *unread) add(d *delivery) {
	u.n++
	level := u.levels.levelOf(d.message.Priority)
	if u.turns != nil {
		u.turns[level].Push(d.message.Key, d.message.Weight, 0, d)
		return
	}
	u.lists[level] = append(u.lists[level], d)
}

// next removes and returns the next delivery, nil without one.
func (u *unread) next() *delivery {
	if u.n == 0 {
		return nil
	}
	n := max(len(u.turns), len(u.lists))
	for i := range n {
		level := u.floor.At(i, n)
		if d := u.pop(level); d != nil {
			u.n--
			u.floor.Took(level)
			return d
		}
	}
	return nil
}

// pop removes and returns the next delivery of a level, nil without one.
func (u *unread) pop(level int) *delivery {
	if u.turns != nil {
		if e := u.turns[level].Pop(); e != nil {
			return e.Item
		}
		return nil
	}
	ds := u.lists[level]
	if len(ds) == 0 {
		return nil
	}
	d := ds[0]
	ds[0] = nil
	u.lists[level] = ds[1:]
	return d
}

// all returns the deliveries by level, each level in the order of next, and removes none.
func (u *unread) all() []*delivery {
	ds := make([]*delivery, 0, u.n)
	for level := range u.turns {
		ds = slices.AppendSeq(ds, u.turns[level].All())
	}
	for _, list := range u.lists {
		ds = append(ds, list...)
	}
	return ds
}

// reset replaces the deliveries by ds, sorted by the levels l.
func (u *unread) reset(l *levels, ds []*delivery) {
	*u = newUnread(l, u.floor)
	for _, d := range ds {
		u.add(d)
	}
}
