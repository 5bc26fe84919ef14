package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeHost implements Host for a machine whose files are in a directory.
type fakeHost struct {
	name, address string
	second        string // address of another interface; empty: there is none
	notRoot       bool
	missing       []string // programs and units that are not installed
	taken         []int    // ports
	active        []string // units
	free          uint64
	have          string   // images that containerd has
	ran           []string // command lines
	onRun         func(line string)
}

func (h *fakeHost) Name() (string, error)    { return h.name, nil }
func (h *fakeHost) Address() (string, error) { return h.address, nil }
func (h *fakeHost) Addresses() ([]netip.Addr, error) {
	all := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(h.address)}
	if h.second != "" {
		all = append(all, netip.MustParseAddr(h.second))
	}
	return all, nil
}
func (h *fakeHost) IsRoot() bool                { return !h.notRoot }
func (h *fakeHost) Program(name string) bool    { return !slices.Contains(h.missing, name) }
func (h *fakeHost) Free(string) (uint64, error) { return h.free, nil }
func (h *fakeHost) PortFree(port int) error {
	if slices.Contains(h.taken, port) {
		return fmt.Errorf("listen tcp :%d: bind: address already in use", port)
	}
	return nil
}

func (h *fakeHost) RemovePods(_ context.Context, socket string) error {
	h.ran = append(h.ran, "remove pods of "+socket)
	return nil
}

func (h *fakeHost) RemoveCgroups(_ context.Context, name string) error {
	h.ran = append(h.ran, "remove cgroups "+name)
	return nil
}

func (h *fakeHost) Unmount(dir string) error {
	h.ran = append(h.ran, "unmount below "+filepath.Base(dir))
	return nil
}

func (h *fakeHost) Become(string) error { return nil }

func (h *fakeHost) Run(_ context.Context, program string, args ...string) (string, error) {
	line := program + " " + strings.Join(args, " ")
	h.ran = append(h.ran, line)
	if h.onRun != nil {
		h.onRun(line)
	}
	switch {
	case strings.HasPrefix(line, "ctr -n k8s.io images ls"):
		return h.have, nil
	case strings.HasPrefix(line, "systemctl cat "):
		if slices.Contains(h.missing, args[1]) {
			return "", errors.New("No files found")
		}
	case strings.HasPrefix(line, "systemctl is-active "):
		if slices.Contains(h.active, args[1]) {
			return "active\n", nil
		}
		return "inactive\n", errors.New("exit status 3")
	case line == "containerd --version":
		return "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n", nil
	}
	return "", nil
}

// newHost returns a machine that passes all preflight checks.
func newHost(t *testing.T) (*fakeHost, Config) {
	t.Helper()
	cfg := Default()
	cfg.Root = t.TempDir()
	cfg.Out = t.Output()
	cfg.Now = func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	for path, content := range map[string]string{
		"/run/systemd/system/.keep":         "",
		"/proc/sys/net/ipv4/ip_forward":     "1\n",
		"/proc/filesystems":                 "nodev\tproc\nnodev\toverlay\n",
		"/proc/swaps":                       "Filename Type Size Used Priority\n",
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
		"/usr/lib/cni/ptp":                  "",
	} {
		write(t, cfg.at(path), content)
	}
	return &fakeHost{name: "Alpha", address: "192.0.2.10", free: 50 << 30}, cfg
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
