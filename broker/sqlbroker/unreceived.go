package sqlbroker

import (
	"slices"

	"github.com/swarmiji/swarmiji/internal/floor"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// unreceived holds the deliveries that Receive has not returned, by level. Those of a fair queue
// come in turns over their keys, the others in the order in which they were added.
type unreceived struct {
	n      int
	levels [][]*delivery
	turns  []turns.Turns[*delivery] // of a fair queue, in place of levels
	added  uint64
	floor  floor.Floor
}

// newUnreceived returns an empty unreceived for the queue and the share of its less urgent levels.
func newUnreceived(q *queue, share float64) unreceived {
	u := unreceived{floor: floor.New(share)}
	if q.text.fair {
		u.turns = make([]turns.Turns[*delivery], q.count())
	} else {
		u.levels = make([][]*delivery, q.count())
	}
	return u
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

// take removes and returns the next delivery, or returns nil. The floor decides its level.
func (u *unreceived) take() *delivery {
	levels := max(len(u.levels), len(u.turns))
	for i := range levels {
		level := u.floor.At(i, levels)
		if d := u.takeFrom(level); d != nil {
			u.floor.Took(level)
			u.n--
			return d
		}
	}
	return nil
}

// takeFrom removes and returns the next delivery of a level, or returns nil.
func (u *unreceived) takeFrom(level int) *delivery {
	if u.turns != nil {
		if e := u.turns[level].Pop(); e != nil {
			return e.Item
		}
		return nil
	}
	ds := u.levels[level]
	if len(ds) == 0 {
		return nil
	}
	d := ds[0]
	ds[0] = nil
	u.levels[level] = ds[1:]
	return d
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

// all returns the deliveries, the most urgent level first.
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
