package natsbroker

import "time"

const (
	// askPause is the pause between two questions whether more urgent messages wait.
	askPause = 20 * time.Millisecond
	// maxDoubts limits the answers that are ignored because they may be about other processes, see
	// matchesReceived.
	maxDoubts = 5
)

// askPending starts a goroutine, unless one runs, that asks the server whether further messages
// wait on this level. While they do, messages of other levels wait. When none is left it lets the
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
			case st.Pending == 0 && !lv.matchesReceived(&st) && doubts < maxDoubts:
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

// isInTransit reports whether all requests of this level are on their way to the server, or used up
// by messages on their way here. That is so if requests are outstanding and the server has no
// request of any process; waiting is its number of them. After the loss of such a message, less
// urgent ones wait until the inbox is lost, up to maxSilence and a heartbeat. Call it with s.mu
// held.
func (lv *level) isInTransit(waiting int) bool {
	return waiting == 0 && lv.isAsked()
}

// isAsked reports whether requests of this level are outstanding. Call it with s.mu held.
func (lv *level) isAsked() bool { return lv.inbox != nil && lv.inbox.outstanding > 0 }

// matchesReceived reports whether the server's answer st seems to count the same deliveries as this
// process. Call it with s.mu held.
//
// An answer may overtake messages on the way here, or be older than one. A larger number of
// deliveries also matches if no request is outstanding: other processes got those messages. While
// requests are outstanding, more unsettled messages than this process holds do not match: one of
// them may be on its way. A server of a cluster counts such a message as unsettled at once, and as
// delivered only when the other servers know of it.
func (lv *level) matchesReceived(st *consumerState) bool {
	if !lv.isAsked() {
		return st.Delivered.Consumer >= lv.delivered
	}
	return st.Delivered.Consumer == lv.delivered && st.AckPending <= lv.unsettled
}
