package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"podium/pkg/client"
	"podium/pkg/version"
)

// snapshotPath is the apiserver's page with the copy of all it stores.
const snapshotPath = "/snapshot"

// Backup writes everything that makes this control plane into one archive:
// the store's snapshot, which the apiserver streams, and what is below
// /etc/podium, keys included. The file is there whole or not at all. Keep it
// where nobody reads it: it is the cluster.
func Backup(ctx context.Context, cfg Config, host Host, file string) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	return m.backup(ctx, file)
}

func (m *machine) backup(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil {
		return fmt.Errorf("%s exists: name a new file", file)
	}
	work, err := os.MkdirTemp(filepath.Dir(file), ".podium-backup-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var c contents
	return m.do(ctx, file,
		step{"snapshot of the store", plain(func(ctx context.Context) error { return m.snapshot(ctx, filepath.Join(work, snapshotName)) })},
		step{"files listed", plain(func(context.Context) (err error) { c, err = m.contents(work); return err })},
		step{"archive written and read again", plain(func(context.Context) error { return m.archive(c, work, file) })},
	)
}

// snapshot asks the apiserver for a copy of its store and checks that it came
// whole: the last bytes are the hash of those before.
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
		err = checkSnapshot(f, size)
	}
	return errors.Join(err, f.Close())
}

func checkSnapshot(r io.ReaderAt, size int64) error {
	if size <= sha256.Size {
		return errors.New("the snapshot is empty")
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, size-sha256.Size)); err != nil {
		return err
	}
	if _, err := r.ReadAt(want, size-sha256.Size); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("the snapshot did not come whole: its hash is not that of its content")
	}
	return nil
}

func (m *machine) contents(work string) (contents, error) {
	c := contents{Format: archiveForm, Made: m.Now().UTC(), Version: version.Podium, Cluster: m.Cluster, Node: m.Node, Files: map[string]string{}}
	names, err := filesOf(m.at(configDir))
	if err != nil {
		return c, err
	}
	for _, name := range names {
		if c.Files[name], err = hashFile(m.at(configDir, name)); err != nil {
			return c, err
		}
	}
	c.Files[snapshotName], err = hashFile(filepath.Join(work, snapshotName))
	return c, err
}

// archive writes the file under another name, reads it as restore would, and
// only then gives it its own.
func (m *machine) archive(c contents, work, file string) (err error) {
	next := filepath.Join(work, "archive")
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := writeArchive(f, c, filepath.Join(work, snapshotName), m.at(configDir)); err != nil {
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
	if _, err := unpack(f, again); err != nil {
		return err
	}
	return os.Link(next, file) // unlike a rename, it replaces nothing
}
