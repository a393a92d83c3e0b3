package affinity

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxFileBytes bounds what is read of one file. Beyond it the file is cut; see the package comment.
const maxFileBytes = 4 << 20

// A membership is one line of /proc/self/cgroup: the controllers of a hierarchy and our group in it.
// Version 2 has one hierarchy, with no controllers named.
type membership struct {
	controllers []string // empty for version 2
	group       string   // absolute
}

// A mount is a cgroup file system of /proc/self/mountinfo.
type mount struct {
	v2          bool
	controllers []string // version 1: the controllers of this hierarchy
	root        string   // group that is mounted
	point       string   // where it is mounted
}

// quota finds the strictest CPU limit under root, a file system that looks like "/".
func quota(root fs.FS) (float64, bool) {
	members := parseCgroup(readFile(root, "proc/self/cgroup"))
	mounts := parseMountinfo(readFile(root, "proc/self/mountinfo"))
	strictest, found := 0.0, false
	for _, m := range mounts {
		for _, g := range members {
			if m.v2 != (len(g.controllers) == 0) {
				continue
			}
			if !m.v2 && (!slices.Contains(m.controllers, "cpu") || !slices.Contains(g.controllers, "cpu")) {
				continue
			}
			if q, ok := walk(root, m, g.group); ok && (!found || q < strictest) {
				strictest, found = q, true
			}
		}
	}
	return strictest, found
}

// walk looks at the group's limit and at those of all its ancestors up to the mount's root.
func walk(root fs.FS, m mount, group string) (float64, bool) {
	strictest, found := 0.0, false
	for dir := below(m.root, group); ; dir = path.Dir(dir) {
		at := strings.TrimPrefix(path.Join(m.point, dir), "/")
		if at == "" {
			at = "."
		}
		var q float64
		var ok bool
		if m.v2 {
			q, ok = parseMax(readFile(root, path.Join(at, "cpu.max")))
		} else {
			q, ok = parseCFS(readFile(root, path.Join(at, "cpu.cfs_quota_us")), readFile(root, path.Join(at, "cpu.cfs_period_us")))
		}
		if ok && (!found || q < strictest) {
			strictest, found = q, true
		}
		if dir == "/" {
			return strictest, found
		}
	}
}

// below returns the path of group under a mount of mountRoot. A group outside the mount (a container that
// sees the host's path and its own files) is the mount's root itself.
func below(mountRoot, group string) string {
	mountRoot, group = path.Clean("/"+mountRoot), path.Clean("/"+group)
	if mountRoot == "/" {
		return group
	}
	if rest, ok := strings.CutPrefix(group, mountRoot); ok && (rest == "" || rest[0] == '/') {
		return path.Clean("/" + rest)
	}
	return "/"
}

// parseMax reads version 2's cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD" for no limit.
func parseMax(s string) (float64, bool) {
	f := strings.Fields(s)
	if len(f) == 0 || len(f) > 2 {
		return 0, false
	}
	period := "100000" // the kernel's default, which it lets one leave out
	if len(f) == 2 {
		period = f[1]
	}
	return parseCFS(f[0], period)
}

// parseCFS reads version 1's pair. A quota that is not positive ("-1", and the "max" of version 2) is no limit.
func parseCFS(quota, period string) (float64, bool) {
	q, err := strconv.ParseInt(strings.TrimSpace(quota), 10, 64)
	if err != nil || q <= 0 {
		return 0, false
	}
	p, err := strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if err != nil || p <= 0 {
		return 0, false
	}
	return float64(q) / float64(p), true
}

// parseCgroup reads /proc/self/cgroup, lines of "ID:CONTROLLERS:GROUP". Lines of another form are skipped.
func parseCgroup(s string) []membership {
	var members []membership
	for line := range strings.Lines(s) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		m := membership{group: f[2]}
		if f[1] != "" {
			m.controllers = strings.Split(f[1], ",")
		}
		members = append(members, m)
	}
	return members
}

// parseMountinfo picks the cgroup mounts out of /proc/self/mountinfo:
//
//	36 35 98:0 /ROOT /POINT rw,noatime shared:1 - TYPE source SUPER,OPTIONS
//
// Any number of optional fields stands before the dash. Lines of another form are skipped.
func parseMountinfo(s string) []mount {
	var mounts []mount
	for line := range strings.Lines(s) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		if !ok {
			continue
		}
		l, r := strings.Split(left, " "), strings.Split(right, " ")
		if len(l) < 6 || len(r) < 1 {
			continue
		}
		m := mount{root: unescape(l[3]), point: unescape(l[4])}
		switch {
		case r[0] == "cgroup2":
			m.v2 = true
		case r[0] == "cgroup" && len(r) >= 3:
			m.controllers = strings.Split(r[2], ",")
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape undoes the kernel's octal escapes for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// readFile returns the start of a file, or "" when it cannot be read: absence means no limit.
func readFile(root fs.FS, name string) string {
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err != nil {
		return ""
	}
	return string(b)
}
