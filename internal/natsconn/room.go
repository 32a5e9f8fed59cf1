package natsconn

import "context"

// WaitRoom waits until little enough is buffered for the session's connection, for publishes that wait for no answer. It
// returns nil as well when the connection has ended, and else ctx's error.
func (s *Session) WaitRoom(ctx context.Context) error { return s.sock.waitRoom(ctx) }
