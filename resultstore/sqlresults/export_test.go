package sqlresults

import "context"

// Share makes a Store on the connection of another, which stays that one's: what a database in memory needs to be seen from two
// sides.
func Share(s *Store) *Store {
	return newStore(s.cfg, s.conn, func(context.Context) error { return nil })
}

// Sweep deletes what has expired, as the store does by itself from time to time.
func Sweep(s *Store) { s.sweep() }

// PageSize is how many records a stream reads at once.
const PageSize = pageSize

// SweepBatch is how many rows one transaction deletes at most.
const SweepBatch = sweepBatch
