package natsconn

import "context"

const (
	socketRoom = 4 << 20 // bytes that may wait to be written before WaitRoom blocks
	keepBuffer = 1 << 20 // largest write buffer that is reused
)

// WaitRoom waits until fewer than socketRoom bytes wait to be written on the connection. Call it
// before publishing without an answer. Returns ctx's error when ctx ends first. Returns nil when
// the connection has ended. A server that reads nothing does not answer pings either, so its
// connection ends.
func (s *Session) WaitRoom(ctx context.Context) error {
	if err := s.sock.WaitRoom(ctx, nil); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil // the next write reports the failure
}
