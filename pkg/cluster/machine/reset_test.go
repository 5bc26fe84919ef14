package machine

import (
	"os"
	"slices"
	"testing"
)

// TestResetLeavesNothing checks that Reset removes all files of Podium and no
// others, and can run twice.
func TestResetLeavesNothing(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	if err := m.runtime(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.start(t.Context(), append(m.controlPlane(), m.node()...)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{etcdData + "/member/wal", "/var/lib/kubelet/pods/x", "/var/log/pods/y", "/var/lib/cni/networks/podium/10.244.0.2",
		"/etc/default/kubelet", "/etc/containerd/config.toml", "/var/lib/other/precious"} {
		write(t, cfg.at(path), "something")
	}
	for range 2 {
		if err := Reset(t.Context(), cfg, host); err != nil {
			t.Fatal(err)
		}
		for _, dir := range leftBehind {
			entries, err := os.ReadDir(cfg.at(dir))
			if len(entries) > 0 {
				t.Errorf("%s still holds %v (%v)", dir, entries, err)
			}
		}
		if _, err := os.Stat(cfg.at(containerdDropIn)); err == nil {
			t.Error("containerd still reads our file")
		}
		for _, path := range []string{"/etc/default/kubelet", "/etc/containerd/config.toml", "/var/lib/other/precious"} {
			if _, err := os.Stat(cfg.at(path)); err != nil {
				t.Errorf("what is not ours is gone: %v", err)
			}
		}
	}
	order := []string{"systemctl disable --quiet --now kubelet.service", "remove pods of unix:///run/containerd/containerd.sock",
		"systemctl disable --quiet --now etcd.service", "kube-proxy --cleanup"}
	at := -1
	for _, line := range order {
		i := slices.Index(host.ran, line)
		if i <= at {
			t.Errorf("%q came at %d, after %d of the one that must be before", line, i, at)
		}
		at = i
	}
}

func TestResetIsForRoot(t *testing.T) {
	host, cfg := newHost(t)
	host.notRoot = true
	if err := Reset(t.Context(), cfg, host); err == nil || len(host.ran) > 0 {
		t.Errorf("got %v, and ran %v", err, host.ran)
	}
}
