// Package affinity knows which CPUs this process may use and pins threads to them.
//
// It owns three questions and one act:
//
//	Allowed  which CPUs the scheduler may give us      sched_getaffinity at process start
//	Quota    how much CPU time the cgroup grants       cpu.max (v2), cpu.cfs_quota_us (v1), any ancestor
//	CPUs     how many cores are worth running          min(len(Allowed), quota rounded up), at least 1
//	Pin      tie the calling OS thread to one CPU      sched_setaffinity
//
// It does not decide how many cores run or which of them are pinned: package core does.
//
// # Threading
//
// Every function may be called from any goroutine. Pin and Unpin act on the OS thread that runs the
// call, so the caller has called runtime.LockOSThread first and keeps the lock for as long as the
// pinning should last. Nothing is cached but the mask of process start, which never changes afterwards.
//
// # Invariants
//
//  1. Allowed does not depend on the calling thread. A pinned thread still sees the whole set, since
//     the mask is taken before main runs. Threads that the Go runtime starts later inherit their mask from
//     an unlocked thread, so pinning one locked thread pins no other.
//  2. Pin changes nothing when it returns an error.
//  3. An unreadable or missing /proc or /sys means "no quota", never an error: containers and
//     sandboxes hide either.
//
// # Limits
//
// 65,536 CPU numbers (the kernel's own bound is 8,192). Of each file below /proc and /sys at most 4 MiB
// are read, which is about 20,000 mounts; a mount table cut there finds no quota at worst.
// A cgroup path is at most 4,096 bytes long, and that bounds the ancestors looked at.
//
// # Decisions
//
// The mask is taken once, in a package variable: sched_getaffinity answers for a thread, and every
// thread of a Go process, the first one included, may be pinned by somebody later on. A cpuset that is
// changed while the process runs is therefore not seen; a pinned broker has to be restarted anyhow.
//
// The quota is looked up through /proc/self/mountinfo instead of /sys/fs/cgroup, because version 1
// controllers are mounted wherever the distribution likes, and because a container without its own cgroup
// namespace sees a path of the host in /proc/self/cgroup and only the mount's root tells them apart.
// Every ancestor counts: a limit on a pod binds a container below it that has none.
//
// Start reading at affinity.go.
package affinity
