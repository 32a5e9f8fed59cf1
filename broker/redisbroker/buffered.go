package redisbroker

import "github.com/swarmiji/swarmiji/broker"

var _ broker.Buffer = (*subscription)(nil)

// Buffered implements [broker.Buffer]. It returns the messages that were claimed and that Receive
// has not returned. It takes s.mu.
func (s *subscription) Buffered() (ms []*broker.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.unread.all() {
		ms = append(ms, d.Message())
	}
	return ms
}
