package sqlbroker

import (
	"slices"

	"github.com/swarmiji/swarmiji/internal/turns"
)

// unreceived holds the deliveries that Receive has not returned, by level. Those of a fair queue
// come in turns over their keys, the others in the order in which they were added.
type unreceived struct {
	n      int
	levels [][]*delivery
	turns  []turns.Turns[*delivery] // of a fair queue, in place of levels
	added  uint64
}

// newUnreceived returns an empty unreceived for the queue.
func newUnreceived(q *queue) unreceived {
	if q.text.fair {
		return unreceived{turns: make([]turns.Turns[*delivery], q.count())}
	}
	return unreceived{levels: make([][]*delivery, q.count())}
}

// add adds a delivery at the end of its level or key.
func (u *unreceived) add(d *delivery) {
	u.n++
	if u.turns == nil {
		u.levels[d.level] = append(u.levels[d.level], d)
		return
	}
	u.added++
	d.entry = u.turns[d.level].Push(d.message.Key, d.message.Weight, u.added, d)
}

// take removes and returns the next delivery, of the most urgent level, or returns nil.
func (u *unreceived) take() *delivery {
	for level, ds := range u.levels {
		if len(ds) > 0 {
			d := ds[0]
			ds[0] = nil
			u.levels[level] = ds[1:]
			u.n--
			return d
		}
	}
	for level := range u.turns {
		if e := u.turns[level].Pop(); e != nil {
			u.n--
			return e.Item
		}
	}
	return nil
}

// remove removes a delivery. It does nothing if Receive has returned it.
func (u *unreceived) remove(d *delivery) {
	if u.turns != nil {
		before := u.turns[d.level].Len()
		if d.entry != nil {
			u.turns[d.level].Remove(d.entry)
		}
		u.n -= before - u.turns[d.level].Len()
		return
	}
	if i := slices.Index(u.levels[d.level], d); i >= 0 {
		u.levels[d.level] = slices.Delete(u.levels[d.level], i, i+1)
		u.n--
	}
}

// all returns the deliveries in the order in which take would return them.
func (u *unreceived) all() []*delivery {
	all := make([]*delivery, 0, u.n)
	for _, ds := range u.levels {
		all = append(all, ds...)
	}
	for level := range u.turns {
		all = slices.AppendSeq(all, u.turns[level].All())
	}
	return all
}
