package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/volumebinding"
)

// The directories of local-path volumes are in the folder local-path of the root
// directory, named after the volumes. A directory that is being removed has another name,
// which no volume can have: from then on its removal continues, whatever happens.
const doomed = ".deleted-"

// LocalPathRoot returns the directory of all local-path volumes of a kubelet with that
// root directory.
func LocalPathRoot(root string) string { return filepath.Join(root, "local-path") }

func (c *Config) localPath(volume string) string {
	return volumebinding.LocalPathDir(LocalPathRoot(c.Root), volume)
}

// setUpLocalPath makes the directory of a local-path volume. Before that it records on
// disk that the pod uses the volume, and in the API that the volume may have a directory.
// The record comes before the last look at the volume, so that either this call sees that
// the volume is being deleted, or RemoveLocalPath sees the record.
func (c claim) setUpLocalPath(ctx context.Context, v *Volume, pv *corev1.PersistentVolume) error {
	dir := c.host.localPath(pv.Name)
	if pv.Spec.Local.Path != dir {
		return fmt.Errorf("local-path volume %s is at %s: this kubelet keeps it at %s", pv.Name, pv.Spec.Local.Path, dir)
	}
	if err := v.recordUse(pv); err != nil {
		return err
	}
	pv, err := c.host.Sources.PersistentVolume(ctx, pv.Name)
	if err != nil {
		return fmt.Errorf("get persistent volume: %w", err)
	}
	if pv.DeletionTimestamp != nil {
		return fmt.Errorf("persistent volume %s is being deleted", pv.Name)
	}
	if !volumebinding.Held(pv) {
		if err := c.host.Sources.HoldVolume(ctx, pv); err != nil {
			return fmt.Errorf("add finalizer to persistent volume: %w", err)
		}
	}
	return makeSharedDir(dir)
}

// makeSharedDir creates a directory that every user of the node may use, in a folder that
// only root may list. It returns nil if the directory exists.
func makeSharedDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o777), f.Close())
}

// RemoveLocalPath removes the directory of a local-path volume that is being deleted. It
// fails while a pod uses the volume, and while something is mounted in the directory. It
// follows no links, returns nil if there is no directory, and stops when ctx ends.
func (m *Manager) RemoveLocalPath(ctx context.Context, pv *corev1.PersistentVolume) error {
	dir := m.localPath(pv.Name)
	switch {
	case strings.ContainsAny(pv.Name, "/\x00") || strings.HasPrefix(pv.Name, "."):
		return fmt.Errorf("volume name %q is not usable as a directory name", pv.Name)
	case pv.Spec.Local == nil || pv.Spec.Local.Path != dir:
		return fmt.Errorf("the volume is not at %s", dir)
	}
	if pod, err := m.userOf(pv.Name, ""); err != nil {
		return err
	} else if pod != "" {
		return fmt.Errorf("the pod with the UID %s still uses it", pod)
	}
	to := filepath.Join(LocalPathRoot(m.Root), doomed+pv.Name)
	if err := removeDoomed(ctx, to); err != nil { // of an earlier attempt
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if points, err := m.Mounter.Under(dir); err != nil {
		return err
	} else if len(points) > 0 {
		return fmt.Errorf("%s is a mount point: unmount it", points[0])
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return removeDoomed(ctx, to)
}

func removeDoomed(ctx context.Context, dir string) error {
	if err := removeTree(ctx, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SweepLocalPaths continues the removals that were interrupted.
func (m *Manager) SweepLocalPaths(ctx context.Context) error {
	root := LocalPathRoot(m.Root)
	entries, err := readDir(root)
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), doomed) {
			errs = append(errs, removeDoomed(ctx, filepath.Join(root, e.Name())))
		}
	}
	return errors.Join(errs...)
}
