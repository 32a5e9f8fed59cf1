package natsbroker

import "time"

const (
	// askPause is the pause between two questions whether more urgent messages wait.
	askPause = 20 * time.Millisecond
	// maxDoubts limits the answers that are ignored because they count other deliveries, see
	// matchesReceived.
	maxDoubts = 2
)

// askPending starts a goroutine, unless one runs, that asks the server whether further messages
// wait on this level. While they do, less urgent messages wait. When none is left it lets the
// subscription deliver them. Call it with s.mu held.
func (lv *level) askPending() {
	if lv.asking || lv.s.fetch.Err() != nil {
		return
	}
	lv.asking = true
	s := lv.s
	s.done.Go(func() {
		doubts := 0
		for {
			st, err := s.b.state(s.fetch, s.q, lv.index)
			s.mu.Lock()
			switch {
			case err != nil:
			case st.Pending == 0 && lv.isInTransit(st.Waiting):
			case st.Pending == 0 && !lv.matchesReceived(st.Delivered.Consumer) && doubts < maxDoubts:
				doubts++
			default:
				lv.pending = st.Pending
			}
			if lv.pending == 0 || s.fetch.Err() != nil || s.line.Len() == 0 {
				lv.asking = false
				s.line.Serve()
				s.mu.Unlock()
				return
			}
			s.mu.Unlock()
			if !s.b.pause(s.fetch, askPause) {
				return
			}
		}
	})
}

// isInTransit reports whether a request of this level, or the message that answers it, is on its
// way. waiting is the number of requests that the server has, of any process. A lost request ends
// with its inbox after maxSilence. Call it with s.mu held.
//
// The counter of deliveries does not show this on a cluster. The server subtracts a message from
// the waiting ones at once, but counts and sends it only when the other servers know of it.
func (lv *level) isInTransit(waiting int) bool {
	return waiting == 0 && lv.isAsked()
}

// isAsked reports whether requests of this level are outstanding. Call it with s.mu held.
func (lv *level) isAsked() bool { return lv.inbox != nil && lv.inbox.outstanding > 0 }

// matchesReceived reports whether the server's answer can be used: it counts the same deliveries as
// this process. delivered is the number of messages that the consumer has delivered, by the answer.
// Call it with s.mu held.
//
// An answer may overtake messages on the way here, or be older than one. A larger number also
// matches if no request is outstanding: other processes got those messages.
func (lv *level) matchesReceived(delivered uint64) bool {
	return delivered == lv.delivered || delivered > lv.delivered && !lv.isAsked()
}
