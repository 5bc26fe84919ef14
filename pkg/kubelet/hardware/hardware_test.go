package hardware_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/hardware/drawn"
)

var sameSets = cmp.Comparer(cpuset.CPUSet.Equals)

var drawings = map[string]drawn.Drawing{
	"one socket":              {Sockets: 1, Nodes: 1, Cores: 4, Threads: 1, Memory: 8 << 30},
	"hyper-threading":         {Sockets: 2, Nodes: 2, Cores: 8, Threads: 2, Memory: 16 << 30},
	"two nodes in a socket":   {Sockets: 2, Nodes: 4, Cores: 16, Threads: 2, Memory: 16 << 30},
	"two sockets in a node":   {Sockets: 2, Nodes: 1, Cores: 8, Threads: 1, Memory: 16 << 30},
	"CPUs 1, 8 and 9 offline": {Sockets: 2, Nodes: 2, Cores: 8, Threads: 2, Memory: 16 << 30, Offline: []int{1, 8, 9}},
}

func TestDiscoverReadsDrawnMachines(t *testing.T) {
	for name, d := range drawings {
		t.Run(name, func(t *testing.T) {
			paths, err := d.Write(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			got, err := hardware.Discover(paths)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d.Machine(), got, sameSets); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiscoverLeavesOutCPUsOfOtherCgroups(t *testing.T) {
	for _, file := range []string{"cpuset.cpus.effective", "cpuset/cpuset.cpus"} {
		paths, err := drawings["hyper-threading"].Write(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(paths.Cgroups, file), "2-3,10")
		m, err := hardware.Discover(paths)
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]hardware.CPU{
			2: {ID: 2, Core: 2, Cache: 2, Socket: 2}, 3: {ID: 3, Core: 3, Cache: 2, Socket: 2}, 10: {ID: 10, Core: 2, Cache: 2, Socket: 2},
		}
		if diff := cmp.Diff(want, m.CPUs); diff != "" {
			t.Error(file, diff)
		}
	}
}

func TestDiscoverWithoutNUMA(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sys/devices/system/cpu/online"), "0-1")
	write(t, filepath.Join(dir, "proc/meminfo"), "MemTotal:  2048 kB")
	write(t, filepath.Join(dir, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "3")
	m, err := hardware.Discover(hardware.Paths{Sys: filepath.Join(dir, "sys"), Proc: filepath.Join(dir, "proc")})
	if err != nil {
		t.Fatal(err)
	}
	want := hardware.Machine{
		CPUs:  map[int]hardware.CPU{0: {ID: 0}, 1: {ID: 1, Core: 1}},
		Nodes: map[int]hardware.Node{0: {CPUs: cpuset.New(0, 1), Memory: 2 << 20, HugePages: map[int64]int64{2 << 20: 6 << 20}}},
	}
	if diff := cmp.Diff(want, m, sameSets); diff != "" {
		t.Error(diff)
	}
}

func TestDiscoverThisMachine(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip("no sysfs")
	}
	m, err := hardware.Discover(hardware.Kernel())
	if err != nil {
		t.Fatal(err)
	}
	if m.All().IsEmpty() || len(m.Nodes) == 0 || m.ThreadsPerCore() < 1 {
		t.Errorf("machine: %+v", m)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestParseList(t *testing.T) {
	for text, want := range map[string]string{"": "", "\n": "", "0": "0", "0-3,8\n": "0-3,8", "3,1,2": "1-3", "0-2,1-4": "0-4", "65535": "65535"} {
		got, err := hardware.ParseList(text)
		if err != nil || got.String() != want {
			t.Errorf("ParseList(%q) = %q, %v; want %q", text, got.String(), err, want)
		}
	}
	for _, text := range []string{",", "a", "-1", "1-", "3-1", "65536", "0-99999999999", "+1", "0x1"} {
		if got, err := hardware.ParseList(text); err == nil {
			t.Errorf("ParseList(%q) = %q, want an error", text, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, text := range []string{"", "0-3,8", "0-2,1-4", "65535", "1-", "3-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := hardware.ParseList(text)
		if err != nil {
			return
		}
		again, err := hardware.ParseList(got.String())
		if err != nil || !again.Equals(got) {
			t.Errorf("%q: %s and %s, %v", text, got, again, err)
		}
	})
}
