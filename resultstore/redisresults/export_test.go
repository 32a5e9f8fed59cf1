package redisresults

import "github.com/swarmiji/swarmiji/resultstore"

// Saving reports whether a record is on its way.
func Saving(s *Store) bool {
	v := s.saverOf(nil)
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.trips) > 0
}

// Waiting is the number of notifications that nobody has received yet.
func Waiting(n resultstore.Notifications) int {
	return n.(*stream).messages.Len()
}
