package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const systemdDir = "../../../deploy/systemd"

// TestUnits has systemd verify the unit files, and logs the exposure level of
// each daemon: 0 is safest, 10 most exposed.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
	}
	// A root directory with our units and placeholders for the programs that
	// they start.
	root := t.TempDir()
	files, err := filepath.Glob(systemdDir + "/*")
	if err != nil || len(files) < 8 {
		t.Fatalf("units: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "usr/lib/systemd/system", filepath.Base(file)), string(data))
	}
	programs := []string{"bin/sh"}
	for _, name := range append(allUnits(), "podium") {
		programs = append(programs, "usr/bin/"+name)
	}
	for _, name := range programs {
		program := filepath.Join(root, name)
		write(t, program, "#!/bin/true\n")
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"multi-user", "network-online", "sysinit", "basic", "shutdown", "local-fs", "network", "timers", "time-sync"} {
		write(t, filepath.Join(root, "usr/lib/systemd/system", target+".target"), "[Unit]\nDescription="+target+"\n")
	}
	// The maximum exposure levels; a daemon that needs root on the machine
	// scores high.
	most := map[string]float64{"etcd": 2, "kube-apiserver": 2, "kube-controller-manager": 2, "kube-scheduler": 2, "cloud-controller-manager": 2, "kube-proxy": 3.5, "kubelet": 9, "podium-certs": 2}
	score := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`)
	for _, name := range append(allUnits(), "podium-certs") {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(root, "usr/lib/systemd/system", name+".service")
			if text, err := os.ReadFile(file); err != nil || name != "podium-certs" && !strings.Contains(string(text), "\nSlice=podium.slice\n") {
				t.Errorf("the daemon is not in podium.slice, so pods compete with it as equals (%v)", err)
			}
			out, err := exec.Command("systemd-analyze", "verify", "--root="+root, "--man=no", "--recursive-errors=no", file).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
			out, err = exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", file).CombinedOutput()
			m := score.FindSubmatch(out)
			if err != nil || m == nil {
				t.Fatalf("systemd-analyze security: %v\n%s", err, out)
			}
			got, err := strconv.ParseFloat(string(m[1]), 64)
			t.Logf("%s: exposure %.1f of 10", name, got)
			if err != nil || got > most[name] {
				t.Errorf("exposure %.1f, want at most %.1f", got, most[name])
			}
		})
	}
}

// TestTheTimerIsRight has systemd parse the schedule of the renewal timer.
func TestTheTimerIsRight(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
	}
	data, err := os.ReadFile(filepath.Join(systemdDir, renewalTimer))
	if err != nil {
		t.Fatal(err)
	}
	when := regexp.MustCompile(`(?m)^OnCalendar=(.+)$`).FindSubmatch(data)
	if when == nil {
		t.Fatalf("it never elapses:\n%s", data)
	}
	if out, err := exec.Command("systemd-analyze", "calendar", string(when[1])).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze calendar %s: %v\n%s", when[1], err, out)
	}
	root := t.TempDir()
	for _, name := range []string{renewalTimer, "podium-certs.service"} {
		data, err := os.ReadFile(filepath.Join(systemdDir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "usr/lib/systemd/system", name), string(data))
	}
	out, err := exec.Command("systemd-analyze", "verify", "--root="+root, "--man=no", "--recursive-errors=no", filepath.Join(root, "usr/lib/systemd/system", renewalTimer)).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
