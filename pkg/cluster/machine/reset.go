package machine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Reset takes this machine out of its cluster: it ends the pods and the units
// and removes what they and podium have written. What an operator wrote in
// /etc/default stays. A machine that is in no cluster is fine.
//
// The Node object stays: podium delete node NAME, on a control plane's machine.
func Reset(ctx context.Context, cfg Config, host Host) error {
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
	if !host.IsRoot() {
		return errors.New("only root may do this: run it as root (sudo)")
	}
	return m.do(ctx, "this machine is in no cluster",
		step{"kubelet stopped", plain(func(ctx context.Context) error { return m.stopUnits(ctx, []string{"kubelet"}) })},
		step{"pods removed", plain(m.removePods)},
		step{"units stopped", plain(func(ctx context.Context) error {
			return errors.Join(m.stopRenewal(ctx), m.stopUnits(ctx, allUnits()[1:]))
		})},
		step{"etcd left", plain(m.leaveEtcd)}, // when nobody here needs it any more
		step{"etcd stopped", plain(func(ctx context.Context) error { return m.stopUnits(ctx, []string{"etcd"}) })},
		step{"network removed", plain(m.removeNetwork)},
		step{"containerd as before", plain(m.restoreContainerd)},
		step{"files removed", plain(func(context.Context) error { return m.removeFiles() })},
	)
}

// removePods ends every pod by the runtime's own client.
func (m *machine) removePods(ctx context.Context) error {
	if _, err := os.Stat(m.at(configDir, "kubelet.yaml")); errors.Is(err, fs.ErrNotExist) {
		return nil // no kubelet of ours has made any
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

// leftBehind are the folders whose content is the cluster's. The folders
// themselves stay: they may be mounts, or the package's.
var leftBehind = []string{configDir, dataDir, logDir, "/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni/networks"}

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
