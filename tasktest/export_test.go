package tasktest

// AddAttempts counts n attempts that did not run. Call it in a handler: Drain, DrainAll and Advance
// begin with none.
func AddAttempts(s *Swarm, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts += n
}
