package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// TearDown unmounts and removes what the pod's volumes have on disk. It keeps other
// files in the pod's directory. It relies on the disk only, so it works for the pods
// of an earlier process too. It blocks while other calls use the pod's volumes, and
// does nothing if the pod has no volumes.
func (m *Manager) TearDown(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	known, err := m.lockAll(ctx, uid)
	for _, v := range known {
		defer v.unlock()
	}
	if err != nil {
		return err
	}
	// Sub-paths are mounts of files in the volumes, so they go first. The state goes
	// last: without it, a partly removed emptyDir would be taken for a new one.
	if err := m.remove(m.subPaths(uid)); err != nil {
		return err
	}
	for _, v := range known {
		v.Pod, v.Spec = nil, nil
		if err := m.tearDown(ctx, v); err != nil {
			return err
		}
	}
	for _, dir := range m.ours(uid) {
		if err := m.remove(dir); err != nil {
			return err
		}
	}
	// The manager owns an empty plugins directory, but not one with other contents.
	if err := os.Remove(filepath.Join(m.podDir(uid), pluginsDir)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	for _, v := range known {
		v.ready = nil // a caller may already be waiting for the volume
	}
	return nil
}

// lockAll locks the volumes of a pod, those on disk included, and returns those that it
// has locked. A set-up that it waited for may have left further volumes on disk.
func (m *Manager) lockAll(ctx context.Context, uid types.UID) (locked map[string]*Volume, err error) {
	locked = map[string]*Volume{}
	for {
		if err := m.recover(uid); err != nil {
			return locked, err
		}
		m.mu.Lock()
		known := maps.Clone(m.pods[uid])
		m.mu.Unlock()
		if len(known) == len(locked) {
			return locked, nil
		}
		for key, v := range known {
			if locked[key] != nil {
				continue
			}
			if err := v.lock(ctx); err != nil {
				return locked, err
			}
			locked[key] = v
		}
	}
}

// recover adds the volumes on disk that this process does not know.
func (m *Manager) recover(uid types.UID) error {
	root := filepath.Join(m.podDir(uid), volumesDir)
	drivers, err := readDir(root)
	if err != nil {
		return err
	}
	for _, driver := range drivers {
		names, err := readDir(filepath.Join(root, driver.Name()))
		if err != nil {
			return err
		}
		for _, name := range names {
			m.volume(uid, driver.Name(), name.Name())
		}
	}
	return nil
}

// readDir lists a directory. It returns nothing if dir does not exist or is not a
// directory.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	return entries, err
}

// tearDown calls the volume's driver to tear it down. If this kubelet does not have
// the driver, it unmounts and removes the volume's directory.
func (m *Manager) tearDown(ctx context.Context, v *Volume) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if info, err := os.Lstat(v.Dir); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil // SetUp has not created it
	}
	var driver interface {
		TearDown(context.Context, *Volume) error
	} = directory{&m.Config}
	name := filepath.Base(filepath.Dir(v.Dir))
	if i := slices.IndexFunc(m.drivers, func(d Driver) bool { return d.Name() == name }); i >= 0 {
		driver = m.drivers[i]
	}
	if err := driver.TearDown(ctx, v); err != nil {
		return fmt.Errorf("tear down volume %q: %w", v.name, err)
	}
	return nil
}

// ours returns the directories of a pod that this package creates, in the order of
// their removal.
func (m *Manager) ours(uid types.UID) []string {
	dirs := []string{m.subPaths(uid), filepath.Join(m.podDir(uid), volumesDir)}
	for _, d := range m.drivers {
		dirs = append(dirs, m.stateDir(uid, d.Name()))
	}
	return dirs
}

// remove unmounts everything at and below dir and removes dir. It returns nil if dir
// does not exist.
func (c *Config) remove(dir string) error {
	if info, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("remove %s: it is not a directory", dir)
	}
	points, err := c.Mounter.Under(dir)
	if err != nil {
		return err
	}
	for _, p := range points {
		if err := c.Mounter.Unmount(p); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	if points, err = c.Mounter.Under(dir); err != nil {
		return err
	} else if len(points) > 0 {
		return fmt.Errorf("remove %s: %s is still a mount point", dir, points[0])
	}
	return removeTree(context.Background(), dir)
}

// Orphans returns the pods that have volumes on disk, whether or not the pods exist.
func (m *Manager) Orphans() ([]types.UID, error) {
	entries, err := readDir(m.podsDir())
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, e := range entries {
		uid := types.UID(e.Name())
		for _, dir := range m.ours(uid) {
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				uids = append(uids, uid)
				break
			}
		}
	}
	return uids, nil
}

// removeTree removes a directory and everything below it. It does not follow links
// or enter mounts, even if they appear meanwhile. It limits the number of open
// descriptors however deep the tree is. It stops early with ctx's error.
func removeTree(ctx context.Context, dir string) error {
	top, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer top.Close()
	r := &remover{top: int(top.Fd()), stopped: ctx.Err}
	for {
		names, err := top.Readdirnames(-1)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return os.Remove(dir)
		}
		for _, name := range names {
			if err := r.remove(r.top, name, 0); err != nil {
				return fmt.Errorf("remove %s: %w", dir, err)
			}
		}
		if _, err := top.Seek(0, io.SeekStart); err != nil { // continue with what was moved to the top
			return err
		}
	}
}

// maxDepth is how deep a remover descends; it moves deeper directories to the top
// first.
const maxDepth = 64

type remover struct {
	top     int
	moved   int
	stopped func() error
}

// remove removes name in the directory parent, recursively. A missing one is not an
// error.
func (r *remover) remove(parent int, name string, depth int) error {
	if err := r.stopped(); err != nil {
		return err
	}
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	if depth > maxDepth {
		return r.moveUp(parent, name)
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	if mounted, err := isMountRoot(parent, fd); err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	} else if mounted {
		return &fs.PathError{Op: "unlink", Path: name, Err: unix.EBUSY}
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := r.remove(fd, n, depth+1); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

// moveUp moves a directory to the top under a new name, to be removed later.
func (r *remover) moveUp(parent int, name string) error {
	for {
		to := fmt.Sprintf("deep-%d", r.moved)
		r.moved++
		err := unix.Renameat2(parent, name, r.top, to, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "rename", Path: name, Err: err}
		}
		return nil
	}
}

// isMountRoot reports whether something is mounted on the open directory. Kernels
// before 5.8 do not report that; for them it compares device numbers.
func isMountRoot(parent, fd int) (bool, error) {
	var dir unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &dir); err != nil {
		return false, err
	}
	if dir.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return dir.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	var up unix.Stat_t
	var here unix.Stat_t
	if err := errors.Join(unix.Fstat(parent, &up), unix.Fstat(fd, &here)); err != nil {
		return false, err
	}
	return up.Dev != here.Dev, nil
}
