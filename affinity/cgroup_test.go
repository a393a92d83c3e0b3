package affinity

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	v2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
	other   = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
)

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
		ok    bool
	}{
		{name: "nothing there"},
		{name: "no /sys", files: map[string]string{
			"proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": other,
		}},
		{name: "no /proc", files: map[string]string{
			"sys/fs/cgroup/cpu.max": "100000 100000\n",
		}},
		{name: "v2, no limit", files: map[string]string{
			"proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": other + v2Mount,
			"sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
		}},
		{name: "v2, own group", want: 1.5, ok: true, files: map[string]string{
			"proc/self/cgroup": "0::/user.slice/broker.service\n", "proc/self/mountinfo": other + v2Mount,
			"sys/fs/cgroup/user.slice/cpu.max":                "400000 100000\n",
			"sys/fs/cgroup/user.slice/broker.service/cpu.max": "150000 100000\n",
		}},
		{name: "v2, an ancestor is stricter", want: 0.5, ok: true, files: map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/broker\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/kubepods/cpu.max":             "50000 100000\n",
			"sys/fs/cgroup/kubepods/pod1/cpu.max":        "max 100000\n",
			"sys/fs/cgroup/kubepods/pod1/broker/cpu.max": "300000 100000\n",
		}},
		{name: "v2, only a file of the middle exists", want: 2, ok: true, files: map[string]string{
			"proc/self/cgroup": "0::/a/b/c\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/a/b/cpu.max": "200000\n",
		}},
		{name: "v2 in a container: the mount is the group", want: 3, ok: true, files: map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/cpu.max": "300000 100000\n",
		}},
		{name: "v2, a group above the namespace", want: 3, ok: true, files: map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/cpu.max": "300000 100000\n",
		}},
		{name: "v1, own group", want: 2.5, ok: true, files: map[string]string{
			"proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/box\n", "proc/self/mountinfo": other + v1Mount,
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":      "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":     "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us":  "250000\n",
			"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
		}},
		{name: "v1 in a container that sees the host's path", want: 1, ok: true, files: map[string]string{
			"proc/self/cgroup":                            "3:cpu,cpuacct:/docker/abc\n",
			"proc/self/mountinfo":                         strings.Replace(v1Mount, " / /sys", " /docker/abc /sys", 1),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "50000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "50000\n",
		}},
		{name: "v1, a sibling of the mounted group", want: 1, ok: true, files: map[string]string{
			"proc/self/cgroup":                            "3:cpu,cpuacct:/docker/abcdef\n",
			"proc/self/mountinfo":                         strings.Replace(v1Mount, " / /sys", " /docker/abc /sys", 1),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "50000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "50000\n",
		}},
		{name: "v1, only cpuacct is mounted", files: map[string]string{
			"proc/self/cgroup":                        "3:cpuacct:/\n",
			"proc/self/mountinfo":                     "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n",
			"sys/fs/cgroup/cpuacct/cpu.cfs_quota_us":  "50000\n",
			"sys/fs/cgroup/cpuacct/cpu.cfs_period_us": "50000\n",
		}},
		{name: "both versions, the strictest counts", want: 1, ok: true, files: map[string]string{
			"proc/self/cgroup":                              "3:cpu,cpuacct:/\n0::/\n",
			"proc/self/mountinfo":                           v1Mount + strings.Replace(v2Mount, "/sys/fs/cgroup", "/sys/fs/cgroup/unified", 1),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":    "200000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":   "100000\n",
			"sys/fs/cgroup/unified/cpu.max":                 "100000 100000\n",
			"sys/fs/cgroup/unified/deeper/not/ours/cpu.max": "1000 100000\n",
		}},
		{name: "a mount point with a space", want: 2, ok: true, files: map[string]string{
			"proc/self/cgroup":    "0::/\n",
			"proc/self/mountinfo": `30 23 0:26 / /mnt/c\040group rw - cgroup2 none rw` + "\n",
			"mnt/c group/cpu.max": "200000 100000\n",
		}},
		{name: "mounted at the root", want: 2, ok: true, files: map[string]string{
			"proc/self/cgroup":    "0::/\n",
			"proc/self/mountinfo": "30 23 0:26 / / rw - cgroup2 none rw\n",
			"cpu.max":             "200000 100000\n",
		}},
		{name: "nonsense in the files", files: map[string]string{
			"proc/self/cgroup": "0::/\n\n:\n0:::\n1:cpu\n", "proc/self/mountinfo": "\n - \n1 2 - cgroup2\n" + v2Mount,
			"sys/fs/cgroup/cpu.max": "0 0\n",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, data := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(data)}
			}
			if got, ok := quota(root); got != c.want || ok != c.ok {
				t.Errorf("quota = %v, %v, want %v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestParseMax(t *testing.T) {
	for _, c := range []struct {
		in   string
		want float64
		ok   bool
	}{
		{"", 0, false},
		{"max", 0, false},
		{"max 100000\n", 0, false},
		{"50000 100000\n", 0.5, true},
		{"50000", 0.5, true},
		{"1 2 3", 0, false},
		{"-1 100000", 0, false},
		{"100000 0", 0, false},
		{"99999999999999999999 1", 0, false},
	} {
		if got, ok := parseMax(c.in); got != c.want || ok != c.ok {
			t.Errorf("parseMax(%q) = %v, %v, want %v, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

// FuzzQuota feeds the parsers whatever a kernel or a container runtime might show. A limit they find is
// positive; a mount and a membership never come without the fields the walk relies on.
func FuzzQuota(f *testing.F) {
	f.Add("3:cpu,cpuacct:/box\n0::/a/b\n", other+v1Mount+v2Mount, "150000 100000")
	f.Add("0::/../x\n", `1 1 0:1 /a /p\040q\9 rw - cgroup2 x rw`+"\n", "max")
	f.Add("1:cpu:/\n", "1 1 0:1 / / rw - cgroup c cpu\n", "-1")
	f.Fuzz(func(t *testing.T, cgroup, mountinfo, limit string) {
		for _, m := range parseCgroup(cgroup) {
			if !strings.HasPrefix(m.group, "/") {
				t.Errorf("group %q is not absolute", m.group)
			}
		}
		for _, m := range parseMountinfo(mountinfo) {
			if m.v2 != (m.controllers == nil) {
				t.Errorf("mount %+v mixes the versions", m)
			}
		}
		root := fstest.MapFS{
			"proc/self/cgroup":      {Data: []byte(cgroup)},
			"proc/self/mountinfo":   {Data: []byte(mountinfo)},
			"sys/fs/cgroup/cpu.max": {Data: []byte(limit)},
		}
		if q, ok := quota(root); ok != (q > 0) {
			t.Errorf("quota = %v, %v", q, ok)
		}
	})
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		"/plain": "/plain", `/a\040b`: "/a b", `\134`: `\`, `/x\`: `/x\`, `/x\04`: `/x\04`, `/x\999`: `/x\999`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRealSystemIsReadable(t *testing.T) {
	// Whatever the machine has, looking must not fail; the value is the machine's business.
	if q, ok := Quota(); ok && q <= 0 {
		t.Errorf("Quota() = %v", q)
	}
	if m := parseMountinfo(other + v1Mount + v2Mount); len(m) != 2 || !slices.Contains(m[0].controllers, "cpu") || !m[1].v2 {
		t.Errorf("mounts %+v", m)
	}
}
