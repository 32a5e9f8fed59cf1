//go:build !linux || 386

package bedrock

import "net"

// outgoing returns ok false, since this system does not report unacknowledged data.
func outgoing(net.Conn) (o outbox, ok bool) { return o, false }

// windowShut returns false, since this system does not report the window.
func windowShut(net.Conn) bool { return false }
