package revoke

import "github.com/swarmiji/swarmiji/task"

// finding is the result of looking up an id in a set.
type finding int

const (
	no    finding = iota
	maybe         // the bus must be asked
	yes
)

// set is a set of ids, each valid until a time in milliseconds since 1970. It stores the newest max
// ids exactly, and older ones in two Bloom filters, so its memory is bounded. A lookup takes one
// map access and a few accesses to the filters. find is safe for concurrent use; add is not.
type set struct {
	max    int
	forget bool // do not add removed ids to a filter, because the list has no bus to ask

	ids   map[task.ID]int64
	order []task.ID // the keys of ids, oldest first
	added int       // since the last sweep

	// Filters with the removed ids. When all ids of the older one are over, the younger one replaces
	// it.
	older, younger *filter
	forgotten      uint64
}

// add adds an id that is valid until ends; now is the current time, both in milliseconds since
// 1970. An id that is over is ignored. A known id gets the later end. If the set is full, evict
// makes room.
func (s *set) add(id task.ID, ends, now int64) {
	if ends <= now {
		return
	}
	if known, ok := s.ids[id]; ok {
		s.ids[id] = max(known, ends)
		return
	}
	if s.added++; len(s.ids) >= s.max {
		s.evict(now)
	}
	if s.ids == nil {
		s.ids = make(map[task.ID]int64)
	}
	s.ids[id] = ends
	s.order = append(s.order, id)
}

// evict makes room for one id: it removes ids that are over, or else the oldest id. It adds that
// one to a filter, or, if s.forget is set, counts it as forgotten. It examines all ids only after
// max/4 additions, so that the average cost of an addition is constant.
func (s *set) evict(now int64) {
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
	s.rotateFilters(now)
	s.younger.add(id, ends)
}

// sweep removes ids that are over from the exact ids, not from the filters, and sets s.added to 0.
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

// rotateFilters drops filters whose ids are all over. If the older filter is missing, the younger
// one takes its place. If the younger filter is missing, rotateFilters makes a new one.
func (s *set) rotateFilters(now int64) {
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

// find looks up an id at the time now: yes if it is stored exactly and not over, maybe if only a
// filter has it, else no.
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
