package redisresults

import "github.com/swarmiji/swarmiji/resultstore"

// Saving reports whether a batch has been sent and not yet removed from the list.
func Saving(s *Store) bool {
	v := s.saverOf(nil)
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.batches) > 0
}

// Waiting returns the number of notifications in the buffer that Receive has not returned.
func Waiting(n resultstore.Notifications) int {
	return n.(*stream).messages.Len()
}
