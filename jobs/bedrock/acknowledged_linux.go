package bedrock

import (
	"errors"
	"math"
	"net"
	"syscall"
	"unsafe"
)

// unacknowledged returns how many bytes written to a TCP connection the client's system has not
// acknowledged. over reports that it never will. ok is false if the system cannot tell.
func unacknowledged(nc net.Conn) (n int, over, ok bool) {
	t, isTCP := nc.(*net.TCPConn)
	if !isTCP {
		return 0, false, false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, false, false
	}
	err = raw.Control(func(fd uintptr) {
		var bytes int32
		// TIOCOUTQ is SIOCOUTQ.
		_, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&bytes))) //nolint:gosec // the kernel writes one int there, and keeps no pointer
		n, ok = int(bytes), e == 0
		if n > 0 {
			_, e := syscall.Getpeername(int(fd))
			over = errors.Is(e, syscall.ENOTCONN)
		}
	})
	if err != nil { // it is closed here
		return math.MaxInt32, true, true
	}
	return n, over, ok
}
