package amqpbroker

import "github.com/swarmiji/swarmiji/broker"

var _ broker.Buffer = (*subscription)(nil)

// Buffered implements [broker.Buffer]. It returns the messages that the server has sent and Receive
// has not returned, the next one first. They stay held for Receive. It takes s.mu.
func (s *subscription) Buffered() (ms []*broker.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.held.All() {
		ms = append(ms, d.Message())
	}
	return ms
}
