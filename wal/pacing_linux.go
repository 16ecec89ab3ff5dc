//go:build linux && !386

package wal

import (
	"encoding/binary"
	"net"
	"syscall"
	"time"
	"unsafe"
)

// minRTT is the kernel's smallest recent round trip of the connection (tcp_info.tcpi_min_rtt, microseconds at byte 148).
// The smoothed one would hold the server's thinking time, which came between our requests and its acknowledgements.
func minRTT(c *net.TCPConn) (time.Duration, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info [256]byte
	size := uint32(len(info))
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil || errno != 0 || size < 152 {
		return 0, false
	}
	us := binary.NativeEndian.Uint32(info[148:])
	if us == 0 || us == ^uint32(0) {
		return 0, false
	}
	return time.Duration(us) * time.Microsecond, true
}

// clampWindow bounds the receive window. A small receive buffer would do so too, but one that was set is a limit of the memory that
// segments take, far more than the bytes in small ones: where nobody reads for a while the kernel drops what comes beyond it, and
// with it the acknowledgements of what we write. Then no answer gets through, and the server ends the session.
func clampWindow(c *net.TCPConn, n int) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	set := error(nil)
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_WINDOW_CLAMP, n)
	})
	return err == nil && set == nil
}

// lowWater makes the kernel wake the runtime's poller only when n bytes wait, instead of for every segment that arrives
// while nobody reads. 1 is the normal state.
func lowWater(c *net.TCPConn, n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
	})
}
