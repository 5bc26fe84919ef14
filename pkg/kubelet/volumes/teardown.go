package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// TearDown unmounts and removes what the pod's volumes have on disk; what else
// is in the pod's directory stays. It needs nothing but the disk, so it does
// for a pod of an earlier kubelet too. Twice is fine.
func (m *Manager) TearDown(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	state, err := m.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer state.unlock()
	for _, dir := range m.ours(uid) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.takeDown(dir); err != nil {
			return err
		}
	}
	// An empty plugins directory is ours too; one with something in it is not.
	if err := os.Remove(filepath.Join(m.podDir(uid), "plugins")); err != nil &&
		!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	clear(state.ready) // for one who already waits for this lock
	return nil
}

// ours are the directories of a pod that this package makes, in the order in
// which they go: sub-paths are mounts of what lies in the volumes, and without
// its marker an empty dir would be taken for a new one.
func (m *Manager) ours(uid types.UID) []string {
	return []string{
		m.subPaths(uid),
		filepath.Join(m.podDir(uid), volumesDir),
		m.emptyDirs(uid),
	}
}

func (m *Manager) takeDown(dir string) error {
	if info, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("remove %s: it is not a directory", dir)
	}
	points, err := m.Mounter.Under(dir)
	if err != nil {
		return err
	}
	for _, p := range points {
		if err := m.Mounter.Unmount(p); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	if points, err = m.Mounter.Under(dir); err != nil {
		return err
	} else if len(points) > 0 {
		return fmt.Errorf("remove %s: %s is still a mount point", dir, points[0])
	}
	return removeTree(dir)
}

// Orphans lists the pods that have volumes on disk, whether or not they exist.
func (m *Manager) Orphans() ([]types.UID, error) {
	entries, err := os.ReadDir(m.podsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
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

// removeTree removes a directory and all below it. It follows no link and
// enters no mount, not even one that appeared a moment ago. However deep a
// container nested its directories, few descriptors are open at a time.
func removeTree(dir string) error {
	top, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer top.Close()
	r := &remover{top: int(top.Fd())}
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
		if _, err := top.Seek(0, io.SeekStart); err != nil { // what was moved up comes next
			return err
		}
	}
}

// maxDepth is how far a remover descends; deeper directories it moves up to
// the top first.
const maxDepth = 64

type remover struct {
	top   int
	moved int
}

func (r *remover) remove(parent int, name string, depth int) error {
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

// isMountRoot asks whether the open directory is where something is mounted.
// Kernels before 5.8 do not say; there another device number does.
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
