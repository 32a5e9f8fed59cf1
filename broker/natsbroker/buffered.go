package natsbroker

import "github.com/swarmiji/swarmiji/broker"

var _ broker.Buffer = (*subscription)(nil)

// Buffered implements [broker.Buffer].
func (s *subscription) Buffered() (ms []*broker.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lv := range s.levels {
		for _, d := range lv.held.All() {
			if !d.hold.dead && d.state == open {
				ms = append(ms, d.Message())
			}
		}
	}
	return ms
}
