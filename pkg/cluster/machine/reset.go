package machine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Reset removes this machine from its cluster: it removes the pods, stops the
// units and deletes the files that they and podium have written. It keeps
// /etc/default, which belongs to the operator. It can be repeated, and succeeds
// on a machine that is in no cluster.
//
// The Node object stays: podium delete node NAME, on a control plane's machine.
func Reset(ctx context.Context, cfg Config, host Host) error {
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
	if !host.IsRoot() {
		return errors.New("this requires root: run it with sudo")
	}
	return m.do(ctx, "this machine is in no cluster",
		step{"kubelet stopped", plain(func(ctx context.Context) error { return m.stopUnits(ctx, []string{"kubelet"}) })},
		step{"pods removed", plain(m.removePods)},
		step{"units stopped", plain(func(ctx context.Context) error {
			return errors.Join(m.stopRenewal(ctx), m.stopUnits(ctx, allUnits()[1:]))
		})},
		step{"etcd left", plain(m.leaveEtcd)}, // after all its clients on this machine have stopped
		step{"etcd stopped", plain(func(ctx context.Context) error { return m.stopUnits(ctx, []string{"etcd"}) })},
		step{"network removed", plain(m.removeNetwork)},
		step{"containerd as before", plain(m.restoreContainerd)},
		step{"files removed", plain(func(context.Context) error { return m.removeFiles() })},
	)
}

// removePods removes every pod through the CRI runtime.
func (m *machine) removePods(ctx context.Context) error {
	if _, err := os.Stat(m.at(configDir, "kubelet.yaml")); errors.Is(err, fs.ErrNotExist) {
		return nil // Podium's kubelet never ran here
	}
	if err := m.host.RemovePods(ctx, m.runtimeSocket()); err != nil {
		return err
	}
	return m.host.RemoveCgroups(ctx, "kubepods")
}

func (m *machine) removeNetwork(ctx context.Context) error {
	if !m.host.Program("kube-proxy") {
		return nil
	}
	_, err := m.host.Run(ctx, "kube-proxy", "--cleanup")
	return err
}

// restoreContainerd removes the drop-in and restarts containerd if it runs. It
// does nothing without the drop-in.
func (m *machine) restoreContainerd(ctx context.Context) error {
	err := os.Remove(m.at(containerdDropIn))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(m.at(containerdDropIn))) // others may have drop-ins there
	if _, err := m.host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	_, err = m.host.Run(ctx, "systemctl", "try-restart", "containerd.service")
	return err
}

// leftBehind are the directories whose content belongs to the cluster. The
// directories themselves stay: they may be mount points, or belong to the
// package.
var leftBehind = []string{configDir, dataDir, logDir, "/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni/networks"}

// removeFiles detaches the mounts of pods and empties leftBehind.
func (m *machine) removeFiles() error {
	if err := m.host.Unmount(m.at("/var/lib/kubelet")); err != nil {
		return err
	}
	for _, dir := range leftBehind {
		entries, err := os.ReadDir(m.at(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.RemoveAll(m.at(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
