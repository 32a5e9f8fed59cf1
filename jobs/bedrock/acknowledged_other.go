//go:build !linux

package bedrock

import "net"

// unacknowledged cannot tell here.
func unacknowledged(net.Conn) (n int, over, ok bool) { return 0, false, false }
