package sqlresults

// Sweep deletes expired rows like a background sweep, batch rows at a time.
func Sweep(s *Store, batch int64) {
	s.batch = batch
	s.sweep()
}

// Swept waits for a running sweep.
func Swept(s *Store) { s.sweeping.Wait() }

// PageSize is the number of records that a stream reads at once.
const PageSize = pageSize
