package sqlresults

import "context"

// Share makes a Store for another namespace on the connection of s, which still belongs to s. A
// database in memory can be used by several stores only this way.
func Share(s *Store, namespace string) *Store {
	c := s.cfg
	c.Namespace = namespace
	return newStore(c, s.conn, func(context.Context) error { return nil })
}

// Sweep deletes expired rows like a background sweep, batch rows at a time.
func Sweep(s *Store, batch int64) {
	s.batch = batch
	s.sweep()
}

// Swept waits for a running sweep.
func Swept(s *Store) { s.sweeping.Wait() }

// PageSize is the number of records that a stream reads at once.
const PageSize = pageSize
