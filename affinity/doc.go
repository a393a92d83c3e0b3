// Package affinity knows which CPUs this process may use, pins threads to them, and sets how exactly they sleep.
//
// It owns three questions and two acts:
//
//	Allowed  which CPUs the scheduler may give us      sched_getaffinity at process start
//	Quota    how much CPU time the cgroup grants       cpu.max (v2), cpu.cfs_quota_us (v1), any ancestor
//	CPUs     how many cores are worth running          min(len(Allowed), quota rounded up), at least 1
//	Pin      tie the calling OS thread to one CPU      sched_setaffinity
//	RestartWithTimerSlack  let short sleeps be longer  prctl, execve
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
// Why a broker wants more timer slack than the kernel's 50 us: an idle thread of the Go runtime that looks for work finds what another
// is about to run, sleeps for 3 us to leave it to that one, and takes it if it is still there; and the runtime's monitor sleeps for
// 20 us at a time while there is work. With 50 us of slack both wake up in the middle of a publish, on the CPU that the next process on
// its way needs, and goroutines change threads. With 200 us the lone ack takes 61.7 against 64.7 us in memory and 237 against 264 us on
// disk, and the broker's CPU per record is 5 % (bulk) to 25 % (10,000 records/s) less; 100 us has half of it, 500 us no more. What is
// scheduled later because of it was not seen: p99 at 2,000 to 50,000 records/s is the same or less (2 vCPU EPYC, kernel 6.18, Go 1.26.8, in
// turn, medians of three to six, 2026-11-30). A prctl in main is too late for the threads that are there by then; /proc/self/task needs a
// capability for threads other than the caller's; so the process restarts itself before it has anything to lose.
//
// Start reading at affinity.go.
package affinity
