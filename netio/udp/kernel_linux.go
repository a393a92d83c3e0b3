package udp

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is what sending and receiving ask of the system. Descriptors are non-blocking, so neither call
// waits. An Errno of 0 is success.
type kernel struct {
	recvmmsg func(fd uintptr, msgs []mmsghdr) (int, syscall.Errno)
	sendmsg  func(fd uintptr, msg *unix.Msghdr) (int, syscall.Errno)
	pause    func(time.Duration)
}

var realKernel = kernel{recvmmsg: recvmmsg, sendmsg: sendmsg, pause: time.Sleep}

// mmsghdr is struct mmsghdr of sys/socket.h.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // bytes received
}

func recvmmsg(fd uintptr, msgs []mmsghdr) (int, syscall.Errno) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func sendmsg(fd uintptr, msg *unix.Msghdr) (int, syscall.Errno) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(msg)), 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
