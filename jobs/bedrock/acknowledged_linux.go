//go:build !386

package bedrock

import (
	"errors"
	"math"
	"net"
	"syscall"
	"unsafe"
)

// outgoing asks the system for the number of bytes of a TCP connection that are unsent or
// unacknowledged. outbox.over reports that the connection has ended, so that they will never be
// acknowledged. ok is false if the system cannot report it. A connection that is closed here counts
// as over, with all bytes unacknowledged.
func outgoing(nc net.Conn) (o outbox, ok bool) {
	t, isTCP := nc.(*net.TCPConn)
	if !isTCP {
		return o, false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return o, false
	}
	err = raw.Control(func(fd uintptr) {
		var bytes int32
		// TIOCOUTQ is SIOCOUTQ.
		_, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ,
			uintptr(unsafe.Pointer(&bytes))) //nolint:gosec // the kernel keeps no pointer
		o.bytes, ok = int(bytes), e == 0
		if o.bytes > 0 {
			_, e := syscall.Getpeername(int(fd))
			o.over = errors.Is(e, syscall.ENOTCONN)
		}
	})
	if err != nil { // the connection is closed here
		return outbox{bytes: math.MaxInt32, over: true}, true
	}
	return o, ok
}

// roundTrip is the maximum time until an acknowledgement arrives, in milliseconds.
const roundTrip = 1000

// windowShut reports whether the client's system responds but accepts no data now, because its
// program reads slowly or not at all. It also returns true if nothing is unacknowledged or the last
// data were sent less than roundTrip ago. Returns false if the system does not respond, or if this
// system cannot report it.
func windowShut(nc net.Conn) (shut bool) {
	t, isTCP := nc.(*net.TCPConn)
	if !isTCP {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // an error: the connection is closed here
		var info syscall.TCPInfo
		size := uint32(unsafe.Sizeof(info))
		_, _, e := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)),    //nolint:gosec // the kernel keeps no pointer
			uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the kernel keeps no pointer
		// A segment that did not fit into the window is answered, and stays unacknowledged.
		refused := info.Retransmits == 0 && info.Last_ack_recv <= info.Last_data_sent
		answered := info.Unacked == 0 || refused || info.Last_data_sent < roundTrip
		// The answer to the last probe may not have arrived yet.
		shut = e == 0 && answered && info.Probes < 2
	})
	return shut
}
