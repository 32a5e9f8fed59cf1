package redisresults

import "github.com/swarmiji/swarmiji/resultstore"

// Saving reports whether a record is on its way.
func Saving(s *Store) bool {
	s.saver.mu.Lock()
	defer s.saver.mu.Unlock()
	return len(s.saver.trips) > 0
}

// Waiting is the number of notifications that nobody has received yet.
func Waiting(n resultstore.Notifications) int {
	return n.(*stream).messages.Len()
}
