package sqlresults

import "context"

// Share makes a Store of another namespace on the connection of s, which stays that one's: what a database in memory needs to be seen
// from several sides.
func Share(s *Store, namespace string) *Store {
	c := s.cfg
	c.Namespace = namespace
	return newStore(c, s.conn, func(context.Context) error { return nil })
}

// Sweep deletes what has expired, as the store does by itself from time to time, so many rows at once.
func Sweep(s *Store, batch int64) {
	s.batch = batch
	s.sweep()
}

// Swept waits for the sweep that is under way, if there is one.
func Swept(s *Store) { s.sweeping.Wait() }

// PageSize is how many records a stream reads at once.
const PageSize = pageSize
