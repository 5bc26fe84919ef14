package vm

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	images = "../../../_images"
	bridge = "10.0.0.1"
	subnet = "10.0.0."
)

// lab is the environment of the machines: a bridge, and the SSH key for them.
type lab struct {
	dir   string // of disks, sockets and consoles of the test's last run
	boot  string // of the kernel and the base disk
	deb   string
	accel string // QEMU's accelerator
}

// setUp prepares the environment, or skips the test if its prerequisites are missing.
func setUp(t *testing.T) *lab {
	t.Helper()
	if links, err := net.Interfaces(); err != nil || len(links) != 1 {
		t.Skip("this wants a network namespace of its own, with kernel, disk and package at hand: make e2e-vm")
	}
	l := &lab{dir: abs(t, images, "vm/run", t.Name()), boot: abs(t, images, "vm"), deb: newest(t, abs(t, "../../../_deb/*.deb"))}
	sh(t, `rm -rf "$1"; mkdir -p "$1"; ssh-keygen -q -t ed25519 -N "" -f "$1/key"
		ip link set lo up
		ip link add machines type bridge; ip address add `+bridge+`/24 dev machines; ip link set machines up`, l.dir)
	t.Cleanup(func() { sh(t, "ip link delete machines") }) // the next test makes its own
	l.accel = l.accelerator(t)
	return l
}

// accelerator returns the hardware accelerator if it works: a kernel must boot until it misses its
// disk. On some hosts QEMU fails or hangs with it.
func (l *lab) accelerator(t *testing.T) string {
	t.Helper()
	const patience = 10 * time.Second
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return emulation
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "kvm", "-cpu", "max", "-m", "512", "-kernel", filepath.Join(l.boot, "vmlinuz"),
		"-append", "console=ttyS0 panic=-1", "-serial", "stdio").CombinedOutput()
	if err == nil && strings.Contains(string(said), "Kernel panic") {
		return "kvm"
	}
	t.Logf("KVM does not work here (%v, seen within %.1f s): the machines' processors are emulated", err, time.Since(begin).Seconds())
	return emulation
}

const emulation = "tcg,thread=multi"

// sh runs a script that must succeed; its arguments are $1, $2, …
func sh(t *testing.T, script string, args ...string) {
	t.Helper()
	out, err := exec.Command("bash", append([]string{"-e", "-c", script, "bash"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.TrimSpace(script), err, out)
	}
}

func abs(t *testing.T, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newest returns the package that was built last.
func newest(t *testing.T, pattern string) (file string) {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no package at %s (make deb): %v", pattern, err)
	}
	var last os.FileInfo
	for _, f := range found {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if last == nil || info.ModTime().After(last.ModTime()) {
			file, last = f, info
		}
	}
	return file
}
