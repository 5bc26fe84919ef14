package pids

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// machine writes files of the kernel to temporary directories.
func machine(t *testing.T, proc, cgroup map[string]string) Machine {
	t.Helper()
	m := Machine{Proc: t.TempDir(), Cgroup: t.TempDir()}
	for dir, files := range map[string]map[string]string{m.Proc: proc, m.Cgroup: cgroup} {
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

func TestUsageIsBoundedByTheTightestLimit(t *testing.T) {
	for _, c := range []struct {
		name           string
		pidMax, thread string
		cgroup         map[string]string
		want           int64
	}{
		{"pid_max", "32768\n", "192730\n", nil, 32768},
		{"threads-max", "4194304\n", "60000\n", nil, 60000},
		{"cgroup v2 of a node container", "4194304\n", "60000\n", map[string]string{"pids.max": "2048\n"}, 2048},
		{"cgroup v1 of a node container", "4194304\n", "60000\n", map[string]string{"pids/pids.max": "1024\n"}, 1024},
		{"a cgroup without a bound", "32768\n", "192730\n", map[string]string{"pids.max": "max\n"}, 32768},
	} {
		m := machine(t, map[string]string{"sys/kernel/pid_max": c.pidMax, "sys/kernel/threads-max": c.thread, "loadavg": "0.20 0.18 0.12 1/80 11206\n"}, c.cgroup)
		got, err := m.Usage()
		if want := (Usage{Max: c.want, Running: 80}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, want)
		}
	}
	if _, err := (Machine{Proc: t.TempDir()}).Usage(); err == nil {
		t.Error("a machine without procfs has a usage")
	}
}

func TestLimits(t *testing.T) {
	reserve := resource.MustParse("1000")
	if got := Allocatable(32768, &reserve); got != 31768 {
		t.Errorf("allocatable is %d: what is reserved stays for the system", got)
	}
	if got := Allocatable(32768, nil); got != 31129 {
		t.Errorf("allocatable is %d: a twentieth stays for the system where nothing is reserved", got)
	}
	for _, c := range []struct{ configured, allocatable, want int64 }{
		{0, 31129, 4096}, {0, 4000000, 4096}, {0, 1000, 250}, {0, 2, 1}, {-1, 31129, 31129}, {500, 31129, 500},
	} {
		if got := PodLimit(c.configured, c.allocatable); got != c.want {
			t.Errorf("PodLimit(%d, %d) is %d, want %d", c.configured, c.allocatable, got, c.want)
		}
	}
}

func TestThreshold(t *testing.T) {
	for text, want := range map[string]int64{"pid.available<10%": 3276, "pid.available<500": 500, "pid.available<1k": 1000, "pid.available<0%": 0} {
		got, err := ParseThreshold([]string{text})
		if err != nil || got.Of(32768) != want {
			t.Errorf("%s: %+v, %v; want %d of 32768", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "pid.available", "pid.available<x", "pid.available<-1", "pid.available<101%", "pid.available<NaN%", "memory.available<100Mi", "pid.available>5"} {
		if got, err := ParseThreshold([]string{bad}); err == nil {
			t.Errorf("%q is taken: %+v", bad, got)
		}
	}
}

func TestPressureOutlastsItsCauseByTheTransitionPeriod(t *testing.T) {
	now, u := time.Unix(0, 0), Usage{Max: 1000, Running: 950}
	m := &Monitor{Read: func() (Usage, error) { return u, nil }, Threshold: Threshold{Fraction: .1}, Transition: 5 * time.Minute, Now: func() time.Time { return now }}
	if got, threshold, met := m.Measure(); !met || threshold != 100 || got.Available() != 50 {
		t.Errorf("%+v, %d, %t", got, threshold, met)
	}
	u.Running = 10
	now = now.Add(4 * time.Minute)
	if _, _, met := m.Measure(); met || !m.Pressure() {
		t.Error("four minutes later the condition is gone, or pods are still evicted")
	}
	now = now.Add(time.Minute)
	if m.Pressure() {
		t.Error("five minutes later the condition stays")
	}
	m.Read = func() (Usage, error) { return Usage{}, errors.New("no procfs") }
	if _, _, met := m.Measure(); met {
		t.Error("a machine that cannot be measured evicts")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("pid.available<10%", "0.20 0.18 0.12 1/80 11206")
	f.Add("pid.available<1Ki", "")
	f.Fuzz(func(t *testing.T, threshold, load string) {
		if got, err := ParseThreshold([]string{threshold}); err == nil && (got.Count < 0 || !(got.Fraction >= 0 && got.Fraction <= 1)) {
			t.Errorf("%q makes %+v", threshold, got)
		}
		if n, err := parseLoad(load); err == nil && n < 0 {
			t.Errorf("%q makes %d", load, n)
		}
	})
}
