package amqpbroker

import "github.com/swarmiji/swarmiji/broker"

var _ broker.Buffer = (*subscription)(nil)

// Buffered implements [broker.Buffer]. It returns the messages that the server has sent and Receive
// has not returned, the most urgent level first. They stay held for Receive. It takes s.mu.
func (s *subscription) Buffered() (ms []*broker.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range s.levels {
		for _, d := range held.All() {
			ms = append(ms, d.Message())
		}
	}
	return ms
}
