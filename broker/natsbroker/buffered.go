package natsbroker

import "github.com/swarmiji/swarmiji/broker"

var _ broker.Buffer = (*subscription)(nil)

// Buffered implements [broker.Buffer]. It returns the messages that have arrived, that Receive has
// not returned, and whose lease lasts, the next one first. They stay held for Receive. It takes
// s.mu.
func (s *subscription) Buffered() (ms []*broker.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.held.All() {
		if d.isUsable() {
			ms = append(ms, d.Message())
		}
	}
	return ms
}
