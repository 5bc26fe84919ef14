package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"podium/pkg/client"
	"podium/pkg/cluster/files"
	"podium/pkg/cluster/machine/archive"
	"podium/pkg/version"
)

// snapshotPath is the path under which the apiserver serves a snapshot of its
// store.
const snapshotPath = "/snapshot"

// Backup writes this control plane into one archive: the snapshot of the store,
// which the apiserver streams, and the files below /etc/podium, private keys
// included. It creates file whole or not at all, and returns an error if file
// exists. It needs the administrator's kubeconfig of a control plane. The
// archive gives full access to the cluster: store it accordingly.
func Backup(ctx context.Context, cfg Config, host Host, file string) error {
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	return m.backup(ctx, file)
}

// backup is Backup on a machine that was read already.
func (m *machine) backup(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil {
		return fmt.Errorf("%s exists: name a new file", file)
	}
	work, err := os.MkdirTemp(filepath.Dir(file), ".podium-backup-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var c archive.Contents
	return m.do(ctx, file,
		step{"snapshot of the store", plain(func(ctx context.Context) error { return m.snapshot(ctx, filepath.Join(work, archive.SnapshotName)) })},
		step{"files listed", plain(func(context.Context) (err error) { c, err = m.contents(work); return err })},
		step{"archive written and read again", plain(func(context.Context) error { return m.writeBackup(c, work, file) })},
	)
}

// snapshot downloads a copy of the apiserver's store into file, which must not
// exist, and checks that it is complete.
func (m *machine) snapshot(ctx context.Context, file string) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	resp, err := cl.Stream(ctx, client.Request{Path: snapshotPath})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	size, err := io.Copy(f, resp.Body)
	if err == nil {
		err = archive.CheckSnapshot(f, size)
	}
	return errors.Join(err, f.Close())
}

// contents lists the files of configDir and the snapshot in work, with their
// hashes.
func (m *machine) contents(work string) (archive.Contents, error) {
	c := archive.Contents{Format: archive.Form, Made: m.Now().UTC(), Version: version.Podium, Cluster: m.Cluster, Node: m.Node, Files: map[string]string{}}
	names, err := files.List(m.at(configDir))
	if err != nil {
		return c, err
	}
	for _, name := range names {
		if c.Files[name], err = files.Hash(m.at(configDir, name)); err != nil {
			return c, err
		}
	}
	c.Files[archive.SnapshotName], err = files.Hash(filepath.Join(work, archive.SnapshotName))
	return c, err
}

// writeBackup writes the archive below work, unpacks it as a test, and then
// links it to file. It returns an error if file exists by then.
func (m *machine) writeBackup(c archive.Contents, work, file string) (err error) {
	next := filepath.Join(work, "archive")
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := archive.Write(f, c, filepath.Join(work, archive.SnapshotName), m.at(configDir)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	again := filepath.Join(work, "again")
	if err := os.Mkdir(again, 0o700); err != nil {
		return err
	}
	if _, err := archive.Unpack(f, again); err != nil {
		return err
	}
	return os.Link(next, file) // unlike a rename, a link does not replace a file
}
