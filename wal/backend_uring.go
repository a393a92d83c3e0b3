package wal

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// ringBackend writes into the page cache with a call and has the kernel's workers sync, through a ring: the goroutine that waits
// for the disk gives its processor away at once. A goroutine in fdatasync keeps it until the runtime's monitor takes it, which on a
// busy machine is most of the sync, and with a lane per CPU leaves nobody to receive.
//
// A sync that one batch waits for, like the one before it, is made with a call where the process leaves a processor unused: nobody is held up
// then, and neither a worker of the kernel's nor the runtime's poller has to wake up on the way (lone publishes 240 -> 206 us at the p50 and 161
// -> 124 us of CPU, in turn on 2 vCPUs, 2026-11).
//
// Whoever waits is woken by the first of two: the owner, which looks at the completion queue in each of its passes (Poll), and the
// ring's event, which reaches an idle process through the runtime's poller.
//
// It stands on the raw calls of iouring-go/syscall: the root package does not link on Go 1.23 and later, and adds three goroutine
// hops per completion. One request is out at a time.
type ringBackend struct {
	fd      int
	rings   []byte
	sqeMem  []byte
	sqTail  *uint32
	sqMask  uint32
	sqArray []uint32
	sqes    []iouring_syscall.SubmissionQueueEntry64
	cqHead  *uint32
	cqTail  *uint32
	cqMask  uint32
	cqes    []iouring_syscall.CompletionQueueEvent16

	event   *os.File      // eventfd that the kernel adds to with every completion
	wake    chan struct{} // holds one: there may be a completion
	waiting atomic.Bool   // a sync is out; Poll has nothing to look for otherwise

	// Of the goroutine that writes.
	alone  int // syncs in a row that one batch waits for, the next one included; 0 when it is not known
	spare  spareProcessor
	byCall bool // the next sync is made with a call
}

// loneSyncs is how many syncs in a row one batch waits for before they are made with a call. A single one may be the first of a burst.
const loneSyncs = 2

// submitTries bounds how often a submission is tried that the kernel has no memory for at the moment.
const submitTries = 1000

func newRingBackend() (*ringBackend, error) {
	params := &iouring_syscall.IOURingParams{}
	fd, err := iouring_syscall.IOURingSetup(4, params)
	if err != nil {
		return nil, err
	}
	r := &ringBackend{fd: fd, wake: make(chan struct{}, 1), spare: spareProcessor{cpu: processTime}}
	if err := r.init(params); err != nil {
		_ = r.Close()
		return nil, err
	}
	go r.watch()
	return r, nil
}

// init maps the rings and registers the event.
func (r *ringBackend) init(params *iouring_syscall.IOURingParams) (err error) {
	size := max(int(params.SQOffset.Array)+int(params.SQEntries)*4,
		int(params.CQOffset.Cqes)+int(params.CQEntries)*int(unsafe.Sizeof(iouring_syscall.CompletionQueueEvent16{})))
	const prot, share = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(r.fd, int64(iouring_syscall.IORING_OFF_SQ_RING), size, prot, share); err != nil {
		return fmt.Errorf("map rings: %w", err)
	}
	sqeSize := int(params.SQEntries) * int(unsafe.Sizeof(iouring_syscall.SubmissionQueueEntry64{}))
	if r.sqeMem, err = unix.Mmap(r.fd, int64(iouring_syscall.IORING_OFF_SQES), sqeSize, prot, share); err != nil {
		return fmt.Errorf("map submission entries: %w", err)
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqTail, r.sqMask = at(params.SQOffset.Tail), *at(params.SQOffset.RingMask)
	r.cqHead, r.cqTail, r.cqMask = at(params.CQOffset.Head), at(params.CQOffset.Tail), *at(params.CQOffset.RingMask)
	r.sqArray = unsafe.Slice(at(params.SQOffset.Array), params.SQEntries)
	r.sqes = unsafe.Slice((*iouring_syscall.SubmissionQueueEntry64)(unsafe.Pointer(&r.sqeMem[0])), params.SQEntries)
	r.cqes = unsafe.Slice((*iouring_syscall.CompletionQueueEvent16)(unsafe.Pointer(&r.rings[params.CQOffset.Cqes])), params.CQEntries)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	r.event = os.NewFile(uintptr(event), "eventfd")
	number := int32(event)
	if err := iouring_syscall.IOURingRegister(r.fd, iouring_syscall.IORING_REGISTER_EVENTFD, unsafe.Pointer(&number), 1); err != nil {
		return fmt.Errorf("register the eventfd: %w", err)
	}
	return nil
}

// watch passes the event on. It ends when Close closes the event.
func (r *ringBackend) watch() {
	var count [8]byte
	for {
		if _, err := r.event.Read(count[:]); err != nil {
			return
		}
		r.signal()
	}
}

func (r *ringBackend) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Poll wakes the goroutine that waits for a sync when that is over. Any goroutine may call it; it makes no system call.
func (r *ringBackend) Poll() {
	if r.waiting.Load() && atomic.LoadUint32(r.cqHead) != atomic.LoadUint32(r.cqTail) {
		r.signal()
	}
}

func (r *ringBackend) Name() string { return "io_uring" }

func (r *ringBackend) Close() error {
	if r.event != nil {
		_ = r.event.Close()
	}
	if r.sqeMem != nil {
		_ = unix.Munmap(r.sqeMem)
	}
	if r.rings != nil {
		_ = unix.Munmap(r.rings)
	}
	return unix.Close(r.fd)
}

func (r *ringBackend) Write(f File, bufs [][]byte, off int64, sync bool) error {
	if err := f.Writev(bufs, off); err != nil || !sync {
		return err
	}
	return r.Sync(f)
}

// Expect implements expecter.
func (r *ringBackend) Expect(batches int, now time.Time) {
	if batches != 1 {
		r.alone, r.byCall = 0, false
		return
	}
	r.alone = min(r.alone+1, loneSyncs)
	spare := r.spare.look(now)
	r.byCall = spare && r.alone == loneSyncs
}

// Sync submits one fdatasync and waits for it. One that has failed is not tried again.
func (r *ringBackend) Sync(f File) error {
	fd, ok := f.Fd()
	if !ok || r.byCall {
		r.byCall = false
		return f.Datasync()
	}
	tail := *r.sqTail
	k := tail & r.sqMask
	r.sqArray[k] = k
	r.sqes[k].Reset()
	r.sqes[k].PrepOperation(iouring_syscall.IORING_OP_FSYNC, int32(fd), 0, 0, 0)
	r.sqes[k].SetOpFlags(iouring_syscall.IORING_FSYNC_DATASYNC)
	atomic.StoreUint32(r.sqTail, tail+1)
	r.waiting.Store(true)
	defer r.waiting.Store(false)
	if err := r.submit(); err != nil {
		return fmt.Errorf("wal: io_uring submit: %w", err)
	}
	head := *r.cqHead
	for head == atomic.LoadUint32(r.cqTail) {
		<-r.wake
	}
	result := r.cqes[head&r.cqMask].Result()
	atomic.StoreUint32(r.cqHead, head+1)
	return synced(f, result)
}

// synced is the outcome of a sync of f for which the kernel has answered result.
func synced(f File, result int32) error {
	switch errno := syscall.Errno(-result); {
	case result >= 0:
		return nil
	case errno == syscall.ECANCELED:
		// It was never begun: the kernel found no thread for its worker (pids.max of a cgroup, RLIMIT_NPROC), or the thread that
		// submitted it has ended (Linux 6.18, 2026-11). So this is the first sync, not another try at one that failed.
		return f.Datasync()
	default:
		return fmt.Errorf("wal: io_uring fdatasync: %w", errno)
	}
}

// submit hands the prepared entry to the kernel. A sync always goes to a worker of the kernel's, so the call is short and is made
// without telling the runtime.
func (r *ringBackend) submit() error {
	for range submitTries {
		n, _, errno := syscall.RawSyscall6(iouring_syscall.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 0, 0, 0, 0)
		switch {
		case errno == 0 && n == 1:
			return nil
		case errno == 0, errno == syscall.EINTR, errno == syscall.EAGAIN, errno == syscall.EBUSY:
			runtime.Gosched()
		default:
			return errno
		}
	}
	return errors.New("the kernel takes no request")
}
