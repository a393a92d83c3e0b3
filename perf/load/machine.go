package load

import (
	"bufio"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ThisMachine says what this process runs on. What the system does not tell is empty.
func ThisMachine() Machine {
	m := Machine{
		Time: time.Now().UTC().Format(time.RFC3339), CPU: procField("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), Go: runtime.Version(), Commit: commit(),
		RmemMax: procNumber("/proc/sys/net/core/rmem_max"), WmemMax: procNumber("/proc/sys/net/core/wmem_max"),
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	kib, _ := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	m.MemoryMB = kib * 1024 / 1e6
	if content, err := os.ReadFile("/proc/loadavg"); err == nil {
		if parts := strings.Fields(string(content)); len(parts) > 2 {
			m.LoadAverage = strings.Join(parts[:3], " ")
		}
	}
	return m
}

// commit is what this program was built from, as far as the build knows.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}

// procField is the value of the first line "name : value" of a file, "" without one.
func procField(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func procNumber(file string) int64 {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	return n
}

// processCPU is the CPU time that this process has used.
func processCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// dropsBefore is how many datagrams the kernel had dropped for full receive buffers.
type dropsBefore struct {
	n  int64
	ok bool
}

func kernelDrops() dropsBefore {
	content, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return dropsBefore{}
	}
	n, ok := rcvbufErrors(string(content))
	return dropsBefore{n, ok}
}

// rcvbufErrors reads the counter from the two lines that begin with Udp: names, then values.
func rcvbufErrors(snmp string) (n int64, ok bool) {
	var names []string
	for line := range strings.Lines(snmp) {
		rest, is := strings.CutPrefix(line, "Udp:")
		if !is {
			continue
		}
		fields := strings.Fields(rest)
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "RcvbufErrors" && i < len(fields) {
				n, err := strconv.ParseInt(fields[i], 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

// since is how many have been dropped since then.
func (d dropsBefore) since() (n int64, ok bool) {
	now := kernelDrops()
	return now.n - d.n, d.ok && now.ok
}

// ProcessUsage reads CPU, memory and start time of a process of this machine from /proc, for targets whose broker does not tell them.
func ProcessUsage(pid int) (Counters, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	return processUsage(string(content))
}

// Fields of /proc/PID/stat behind the name, which stands in parentheses and may hold anything: proc(5) counts them from 3.
const (
	statUserTicks   = 14 - 3
	statSystemTicks = 15 - 3
	statStart       = 22 - 3
	statPages       = 24 - 3
	ticksPerSecond  = 100 // USER_HZ, which the kernel has shown to programs on every architecture of ours for decades
)

func processUsage(stat string) (Counters, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= statPages {
		return nil, errors.New("/proc/PID/stat has too few fields")
	}
	var values [statPages + 1]float64
	for _, i := range []int{statUserTicks, statSystemTicks, statStart, statPages} {
		var err error
		if values[i], err = strconv.ParseFloat(fields[i], 64); err != nil {
			return nil, err
		}
	}
	return Counters{
		CPUSeconds: (values[statUserTicks] + values[statSystemTicks]) / ticksPerSecond,
		RSSBytes:   values[statPages] * float64(os.Getpagesize()),
		StartTime:  values[statStart] / ticksPerSecond, // since the machine started, which serves as well
	}, nil
}
