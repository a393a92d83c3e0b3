package wal

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// ringBackend submits each group as a WRITEV linked to an FSYNC and waits for both in one io_uring_enter. It stands on
// the raw calls of iouring-go/syscall: the root package does not link on Go 1.23 and later, and adds three goroutine
// hops per completion.
//
// At most two requests are out, and Write returns only when both have completed, so that buffers and iovecs, which are
// fields, outlive every request.
type ringBackend struct {
	fd       int
	rings    []byte
	sqeMem   []byte
	sqTail   *uint32
	sqMask   uint32
	sqArray  []uint32
	sqes     []iouring_syscall.SubmissionQueueEntry64
	cqHead   *uint32
	cqTail   *uint32
	cqMask   uint32
	cqes     []iouring_syscall.CompletionQueueEvent16
	iovecs   [8]unix.Iovec
	fallback syncBackend // for files without a descriptor
}

const (
	tagWrite = 1
	tagSync  = 2
)

func newRingBackend() (*ringBackend, error) {
	params := &iouring_syscall.IOURingParams{}
	fd, err := iouring_syscall.IOURingSetup(4, params)
	if err != nil {
		return nil, err
	}
	r := &ringBackend{fd: fd}
	size := max(int(params.SQOffset.Array)+int(params.SQEntries)*4,
		int(params.CQOffset.Cqes)+int(params.CQEntries)*int(unsafe.Sizeof(iouring_syscall.CompletionQueueEvent16{})))
	const prot, share = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(fd, int64(iouring_syscall.IORING_OFF_SQ_RING), size, prot, share); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("map rings: %w", err)
	}
	sqeSize := int(params.SQEntries) * int(unsafe.Sizeof(iouring_syscall.SubmissionQueueEntry64{}))
	if r.sqeMem, err = unix.Mmap(fd, int64(iouring_syscall.IORING_OFF_SQES), sqeSize, prot, share); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("map submission entries: %w", err)
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqTail, r.sqMask = at(params.SQOffset.Tail), *at(params.SQOffset.RingMask)
	r.cqHead, r.cqTail, r.cqMask = at(params.CQOffset.Head), at(params.CQOffset.Tail), *at(params.CQOffset.RingMask)
	r.sqArray = unsafe.Slice(at(params.SQOffset.Array), params.SQEntries)
	r.sqes = unsafe.Slice((*iouring_syscall.SubmissionQueueEntry64)(unsafe.Pointer(&r.sqeMem[0])), params.SQEntries)
	r.cqes = unsafe.Slice((*iouring_syscall.CompletionQueueEvent16)(unsafe.Pointer(&r.rings[params.CQOffset.Cqes])), params.CQEntries)
	return r, nil
}

func (r *ringBackend) Name() string { return "io_uring" }

func (r *ringBackend) Close() error {
	if r.sqeMem != nil {
		_ = unix.Munmap(r.sqeMem)
	}
	if r.rings != nil {
		_ = unix.Munmap(r.rings)
	}
	r.sqeMem, r.rings = nil, nil
	return unix.Close(r.fd)
}

func (r *ringBackend) Write(f File, bufs [][]byte, off int64, sync bool) error {
	fd, ok := f.Fd()
	if !ok || len(bufs) > len(r.iovecs) {
		return r.fallback.Write(f, bufs, off, sync)
	}
	total := 0
	for i, b := range bufs {
		r.iovecs[i].Base = unsafe.SliceData(b)
		r.iovecs[i].SetLen(len(b))
		total += len(b)
	}
	first, left := 0, total
	for {
		entry := r.entry(0)
		entry.PrepOperation(iouring_syscall.IORING_OP_WRITEV, int32(fd), uint64(uintptr(unsafe.Pointer(&r.iovecs[first]))),
			uint32(len(bufs)-first), uint64(off+int64(total-left)))
		entry.SetUserData(tagWrite)
		n := uint32(1)
		if sync {
			entry.SetFlags(iouring_syscall.IOSQE_FLAGS_IO_LINK)
			r.prepareSync(1, fd)
			n = 2
		}
		wrote, synced, err := r.run(n)
		if err != nil {
			return err
		}
		switch {
		case wrote < 0:
			return fmt.Errorf("wal: io_uring write: %w", syscall.Errno(-wrote))
		case int(wrote) == left:
			if sync && synced < 0 {
				return fmt.Errorf("wal: io_uring fdatasync: %w", syscall.Errno(-synced))
			}
			r.iovecs = [8]unix.Iovec{}
			return nil
		case wrote == 0:
			return fmt.Errorf("wal: io_uring write: %w", io.ErrShortWrite)
		}
		// A short write breaks the link, so that the sync did not run (it answers ECANCELED). The rest goes the same
		// way. A sync that did run and failed is never tried again.
		if sync && synced < 0 && syscall.Errno(-synced) != syscall.ECANCELED {
			return fmt.Errorf("wal: io_uring fdatasync: %w", syscall.Errno(-synced))
		}
		left -= int(wrote)
		for skip := int(wrote); skip > 0; {
			v := &r.iovecs[first]
			if k := int(v.Len); k <= skip {
				skip -= k
				first++
				continue
			}
			v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), skip))
			v.SetLen(int(v.Len) - skip)
			skip = 0
		}
	}
}

func (r *ringBackend) Sync(f File) error {
	fd, ok := f.Fd()
	if !ok {
		return r.fallback.Sync(f)
	}
	r.prepareSync(0, fd)
	_, synced, err := r.run(1)
	if err != nil {
		return err
	}
	if synced < 0 {
		return fmt.Errorf("wal: io_uring fdatasync: %w", syscall.Errno(-synced))
	}
	return nil
}

// entry returns the i-th submission entry of this call, zeroed.
func (r *ringBackend) entry(i uint32) *iouring_syscall.SubmissionQueueEntry64 {
	k := (*r.sqTail + i) & r.sqMask
	r.sqArray[k] = k
	r.sqes[k].Reset()
	return &r.sqes[k]
}

func (r *ringBackend) prepareSync(i uint32, fd int) {
	entry := r.entry(i)
	entry.PrepOperation(iouring_syscall.IORING_OP_FSYNC, int32(fd), 0, 0, 0)
	entry.SetOpFlags(iouring_syscall.IORING_FSYNC_DATASYNC)
	entry.SetUserData(tagSync)
}

// run submits n entries and waits until all have completed. It returns their results; one that was not submitted is 0.
func (r *ringBackend) run(n uint32) (wrote, synced int32, err error) {
	atomic.StoreUint32(r.sqTail, *r.sqTail+n)
	submit, done := n, uint32(0)
	for done < n {
		k, err := iouring_syscall.IOURingEnter(r.fd, submit, n-done, iouring_syscall.IORING_ENTER_FLAGS_GETEVENTS, nil)
		switch {
		case err == nil:
			submit -= uint32(k)
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN):
			// A signal, such as the runtime's preemption, or a full request table: nothing of ours is lost. Look for
			// completions and wait again.
		default:
			// Requests may still be out; their buffers are fields and group buffers, which the poisoned lane keeps.
			return 0, 0, fmt.Errorf("wal: io_uring enter: %w", err)
		}
		head := *r.cqHead
		for ; head != atomic.LoadUint32(r.cqTail); head++ {
			e := &r.cqes[head&r.cqMask]
			if e.UserData() == tagWrite {
				wrote = e.Result()
			} else {
				synced = e.Result()
			}
			done++
		}
		atomic.StoreUint32(r.cqHead, head)
	}
	return wrote, synced, nil
}
