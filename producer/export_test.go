package producer

// Waiters returns the number of tasks whose results p waits for.
func Waiters(p *Producer) int {
	n := 0
	for _, in := range p.inbox {
		in.mu.Lock()
		n += len(in.waiters)
		in.mu.Unlock()
	}
	return n
}
