package revoke

import "github.com/swarmiji/swarmiji/task"

// finding is what a set knows of an id.
type finding int

const (
	no    finding = iota
	maybe         // the bus knows
	yes
)

// set is a set of ids, each until a time in milliseconds since 1970. The newest max are known for certain; of those that
// gave way to them it knows in two filters that they may be there. So its memory is bounded, and a look-up takes a look
// into a map and, once there were more than max, a few into the filters. Not safe for concurrent use, but for find.
type set struct {
	max    int
	forget bool // what gives way is forgotten: there is nobody to ask

	ids   map[task.ID]int64
	order []task.ID // the keys of ids, oldest first
	added int       // since the last sweep

	// filters of what gave way. The older one goes when all in it is over, and the younger takes its place.
	older, younger *filter
	forgotten      uint64
}

// add takes an id in until ends.
func (s *set) add(id task.ID, ends, now int64) {
	if ends <= now {
		return
	}
	if known, ok := s.ids[id]; ok {
		s.ids[id] = max(known, ends)
		return
	}
	if s.added++; len(s.ids) >= s.max {
		s.makeRoom(now)
	}
	if s.ids == nil {
		s.ids = make(map[task.ID]int64)
	}
	s.ids[id] = ends
	s.order = append(s.order, id)
}

// makeRoom removes what is over, else the oldest. It goes through all of them only now and then, so that an id costs the
// same on average however many there are.
func (s *set) makeRoom(now int64) {
	if s.added > s.max/4 {
		s.sweep(now)
	}
	if len(s.ids) < s.max {
		return
	}
	id := s.order[0]
	s.order[0] = ""
	s.order = s.order[1:]
	ends := s.ids[id]
	delete(s.ids, id)
	if ends <= now {
		return
	}
	if s.forget {
		s.forgotten++
		return
	}
	s.turn(now)
	s.younger.add(id, ends)
}

// sweep removes what is over.
func (s *set) sweep(now int64) {
	s.added = 0
	left := make([]task.ID, 0, len(s.order))
	for _, id := range s.order {
		if s.ids[id] > now {
			left = append(left, id)
		} else {
			delete(s.ids, id)
		}
	}
	s.order = left
}

// turn lets go of filters of which nothing is left, and sees to it that there is one to add to.
func (s *set) turn(now int64) {
	if s.older != nil && s.older.ends <= now {
		s.older = nil
	}
	if s.younger != nil && s.older == nil {
		s.older, s.younger = s.younger, nil
		if s.older.ends <= now {
			s.older = nil
		}
	}
	if s.younger == nil {
		s.younger = newFilter()
	}
}

// find says what is known of an id.
func (s *set) find(id task.ID, now int64) finding {
	if s.ids[id] > now {
		return yes
	}
	for _, f := range []*filter{s.younger, s.older} {
		if f != nil && f.ends > now && f.has(id) {
			return maybe
		}
	}
	return no
}
