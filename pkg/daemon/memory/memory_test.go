package memory

import (
	"runtime/debug"
	"testing"
	"testing/fstest"
)

const gib = 1 << 30

func files(content map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range content {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const (
	mountV2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	mountV1     = "25 23 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n34 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	mountHybrid = mountV1 + "26 25 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	mountPart   = "34 25 0:30 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

func TestLimitOfTheCgroup(t *testing.T) {
	for name, row := range map[string]struct {
		reason  string
		cgroups string
		mounts  string
		limits  map[string]string
		want    uint64
	}{
		"Two": {"a unit of systemd", "0::/system.slice/kube-apiserver.service\n", mountV2,
			map[string]string{"sys/fs/cgroup/system.slice/kube-apiserver.service/memory.max": "1073741824\n", "sys/fs/cgroup/system.slice/memory.max": "max\n"}, gib},
		"Above": {"the limit of a slice holds for all in it", "0::/system.slice/a.service\n", mountV2,
			map[string]string{"sys/fs/cgroup/system.slice/a.service/memory.max": "4294967296\n", "sys/fs/cgroup/system.slice/memory.max": "2147483648\n"}, 2 * gib},
		"None": {"", "0::/user.slice\n", mountV2, map[string]string{"sys/fs/cgroup/user.slice/memory.max": "max\n"}, 0},
		"Namespace": {"a container with a cgroup namespace of its own", "0::/\n", mountV2,
			map[string]string{"sys/fs/cgroup/memory.max": "536870912\n"}, gib / 2},
		"One": {"version 1", "11:cpu,cpuacct:/x\n4:memory:/system.slice/a.service\n1:name=systemd:/y\n", mountV1,
			map[string]string{"sys/fs/cgroup/memory/system.slice/a.service/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, gib},
		"OneNone": {"what version 1 says where there is no limit", "4:memory:/\n", mountV1,
			map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"Hybrid": {"version 2 beside version 1 has no controllers", "4:memory:/a\n0::/a\n", mountHybrid,
			map[string]string{"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824\n"}, gib},
		"Part": {"a container that sees its own part of the tree under the whole tree's names", "4:memory:/docker/abc/inner\n", mountPart,
			map[string]string{"sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, gib},
		"Nothing": {"no cgroups are mounted", "", "", nil, 0},
	} {
		content := map[string]string{"proc/self/cgroup": row.cgroups, "proc/self/mountinfo": row.mounts}
		for file, text := range row.limits {
			content[file] = text
		}
		got, err := Cgroup(files(content))
		if err != nil || got != row.want {
			t.Errorf("%s (%s): %d, %v; want %d", name, row.reason, got, err, row.want)
		}
	}
	if _, err := Cgroup(files(nil)); err == nil {
		t.Error("no /proc is no error")
	}
}

func TestMemoryOfTheMachine(t *testing.T) {
	if got, err := Machine(); err != nil || got < 64<<20 || got > 1<<48 {
		t.Errorf("%d, %v", got, err)
	}
}

func TestDecide(t *testing.T) {
	for name, row := range map[string]struct {
		cgroup, machine uint64
		want            int64
		source          string
	}{
		"a limit":                     {gib, 16 * gib, 966367641, "cgroup"},
		"none":                        {0, 16 * gib, 8 * gib, "machine"},
		"one above what there is":     {32 * gib, 16 * gib, 8 * gib, "machine"},
		"all of a small machine":      {gib, gib, 966367641, "cgroup"},
		"a machine that cannot be":    {0, 1 << 63, 1 << 62, "machine"},
		"the largest that is a limit": {1 << 62, 1 << 63, int64(float64(1<<62) * 0.9), "cgroup"},
	} {
		if got, source := decide(row.cgroup, row.machine); got != row.want || source != row.source {
			t.Errorf("%s: %d by %s, want %d by %s", name, got, source, row.want, row.source)
		}
	}
}

func FuzzCgroup(f *testing.F) {
	f.Add("0::/a\n", mountV2, "max")
	f.Add("4:memory:/a\n", mountHybrid, "1024")
	f.Add("4:memory:/../..\n", mountPart, "-1")
	f.Fuzz(func(t *testing.T, cgroups, mounts, limit string) {
		_, _ = Cgroup(files(map[string]string{"proc/self/cgroup": cgroups, "proc/self/mountinfo": mounts, "sys/fs/cgroup/a/memory.max": limit}))
	})
}

func TestCollectAt(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for gogc, want := range map[string]int{"": 50, "200": 100} {
		debug.SetGCPercent(100)
		t.Setenv("GOGC", gogc) // the runtime has read it
		CollectAt(50)
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%q: %d, want %d", gogc, got, want)
		}
	}
}
