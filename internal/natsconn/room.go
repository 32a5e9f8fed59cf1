package natsconn

import "context"

const (
	socketRoom = 4 << 20 // bytes that may wait to be written before publishers hold back
	keepBuffer = 1 << 20 // the largest write buffer that is kept for the next write
)

// WaitRoom waits until little enough is buffered for the session's connection, for publishes that wait for no answer. It
// returns nil as well when the connection has ended, and else ctx's error. A server that takes nothing does not answer pings
// either and is given up for that.
func (s *Session) WaitRoom(ctx context.Context) error {
	if err := s.sock.WaitRoom(ctx, nil); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil // what has failed is told by the next write
}
