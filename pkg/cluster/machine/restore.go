package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"podium/pkg/cluster/files"
	"podium/pkg/cluster/machine/archive"
	"podium/pkg/cluster/machine/etcd"

	"sigs.k8s.io/yaml"
)

// revisionBump is added to the store's revision: clients that saw revisions
// after the snapshot must not confuse them with new ones.
const revisionBump = "1000000000"

// Restore makes this machine the control plane that a backup was made of. It
// checks the whole archive before it changes anything, and moves the present
// files aside instead of deleting them. It starts a new etcd cluster with one
// member: etcd members on other machines have to join again. It blocks until
// the node is Ready.
func Restore(ctx context.Context, cfg Config, host Host, file string) error {
	if !host.IsRoot() {
		return errors.New("this requires root: run it with sudo")
	}
	if err := os.MkdirAll(cfg.at(dataDir), 0o700); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cfg.at(dataDir), "restore-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := &restoring{work: work}
	if r.machine, err = r.check(cfg, host, file); err != nil {
		return fmt.Errorf("%s: %w (nothing was changed)", file, err)
	}
	return r.do(ctx, fmt.Sprintf("the cluster is as it was at %s", r.backup.Made.Format(time.RFC3339)),
		step{"preflight checks", plain(r.preflight)},
		step{"store rebuilt from the snapshot", plain(r.rebuild)},
		step{"control plane stopped", plain(func(ctx context.Context) error { return r.stopUnits(ctx, allUnits()) })},
		step{"files put in place", plain(r.place)},
		step{"containerd set up", plain(r.runtime)},
		step{"images loaded", r.images},
		step{"units started", plain(func(ctx context.Context) error {
			r.renewed = true
			return r.start(ctx, append(r.controlPlane(), r.node()...))
		})},
		step{"kube-apiserver ready", r.apiserverReady},
		step{"node " + r.Node + " Ready", r.nodeReady},
	)
}

// restoring is a machine with an unpacked backup.
type restoring struct {
	*machine
	work   string // directory with the unpacked archive
	backup archive.Contents
}

// check unpacks the archive, verifies the snapshot and reads the machine's
// configuration. It returns an error if the backup was made at another address
// than this machine's.
func (r *restoring) check(cfg Config, host Host, file string) (*machine, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if r.backup, err = archive.Unpack(f, r.work); err != nil {
		return nil, err
	}
	db, err := os.Open(filepath.Join(r.work, archive.SnapshotName))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	info, err := db.Stat()
	if err != nil {
		return nil, err
	}
	if err := archive.CheckSnapshot(db, info.Size()); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(r.work, filepath.Base(machineFile)))
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(machineFile), err)
	}
	cfg.EtcdMembers = "" // it starts a new etcd cluster
	if err := atAddress(cfg, host); err != nil {
		return nil, err
	}
	return newMachine(cfg, host)
}

// atAddress returns an error unless an interface of this machine has the
// backup's address.
func atAddress(cfg Config, host Host) error {
	want, err := netip.ParseAddr(cfg.NodeIP)
	if err != nil {
		return fmt.Errorf("%s: nodeIP: %w", filepath.Base(machineFile), err)
	}
	have, err := host.Addresses()
	if err != nil || slices.Contains(have, want) {
		return err
	}
	return fmt.Errorf("it was made on %s at %s; this machine has the addresses %s: give it that address first, since certificates and workers refer to the control plane by it", cfg.Node, cfg.NodeIP, have)
}

func (r *restoring) preflight(ctx context.Context) error {
	if !r.host.Program("etcdutl") {
		return errors.New("etcdutl is not installed: install Podium's package")
	}
	return r.machine.preflight(ctx, controlPlaneChecks(r.Port))
}

// rebuild creates a data directory from the snapshot, beside the one in use.
func (r *restoring) rebuild(ctx context.Context) error {
	_, err := r.host.Run(ctx, "etcdutl", "snapshot", "restore", filepath.Join(r.work, archive.SnapshotName),
		"--data-dir", filepath.Join(r.work, "etcd"), "--name", r.Node,
		"--initial-cluster", r.Node+"="+etcd.PeerURL(r.NodeIP), "--initial-advertise-peer-urls", etcd.PeerURL(r.NodeIP),
		"--initial-cluster-token", r.Cluster+"-"+r.backup.Made.Format("20060102150405"),
		"--bump-revision", revisionBump, "--mark-compacted")
	return err
}

// place moves the present files aside and the backup's files to their paths.
func (r *restoring) place(context.Context) error {
	aside := ".before-" + r.Now().UTC().Format("20060102-150405")
	for _, dir := range []string{configDir, etcdData} {
		if err := os.Rename(r.at(dir), r.at(dir)+aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(filepath.Join(r.work, "etcd"), r.at(etcdData)); err != nil {
		return err
	}
	for name := range r.backup.Files {
		if name == archive.SnapshotName {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.work, name))
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if ext := filepath.Ext(name); ext == ".crt" || ext == ".pub" || ext == ".toml" {
			mode = 0o644
		}
		if _, err := files.Write(r.at(configDir, name), data, mode); err != nil {
			return err
		}
	}
	return os.Chmod(r.at(pkiDir), 0o700)
}
