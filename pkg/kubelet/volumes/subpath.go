package volumes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// SubPath resolves subPath in a volume that SetUp returned, and returns a path to
// mount instead. Links cannot lead out of the volume. The result is bind-mounted by
// its descriptor on a path of the kubelet, so that a container cannot replace it
// meanwhile. SubPath creates a missing directory. It blocks while another call uses
// the volume. TearDown removes the mount.
func (m *Manager) SubPath(ctx context.Context, mount Mount, subPath string) (hostPath string, err error) {
	if filepath.IsAbs(subPath) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
	}
	for _, name := range strings.Split(subPath, "/") {
		if name == ".." {
			return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", subPath)
		}
	}
	if subPath = filepath.Clean(subPath); subPath == "." {
		return mount.HostPath, nil
	}
	v, err := m.known(mount)
	if err != nil {
		return "", err
	}
	if err := v.lock(ctx); err != nil {
		return "", err
	}
	defer v.unlock()

	fd, err := openBeneath(mount.HostPath, subPath)
	if err != nil {
		return "", fmt.Errorf("error resolving SubPath `%s` of volume %q: %w", subPath, mount.volume, err)
	}
	defer unix.Close(fd)
	sum := sha256.Sum256([]byte(subPath))
	target := filepath.Join(m.subPaths(mount.pod), mount.volume, hex.EncodeToString(sum[:8]))
	if err := m.bind(fd, target); err != nil {
		return "", fmt.Errorf("bind SubPath `%s` of volume %q: %w", subPath, mount.volume, err)
	}
	return target, nil
}

// known returns the volume of a Mount.
func (m *Manager) known(mount Mount) (*Volume, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.pods[mount.pod][mount.key]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("volume %q of pod %q is not set up", mount.volume, mount.pod)
}

// bind bind-mounts fd on target and replaces what was mounted there, unless it is the
// same file: running containers keep their mount.
func (m *Manager) bind(fd int, target string) error {
	points, err := m.Mounter.Under(target)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		if same(fd, target) {
			return nil
		}
		for _, p := range points {
			if err := m.Mounter.Unmount(p); err != nil {
				return err
			}
		}
	}
	if err := removeTarget(target); err != nil {
		return err
	}
	if err := makeLike(fd, target); err != nil {
		return err
	}
	return m.Mounter.Bind(fd, target)
}

func same(fd int, path string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(fd, &a) == nil && unix.Lstat(path, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// removeTarget removes the empty target of an earlier mount.
func removeTarget(target string) error {
	err := os.Remove(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeLike creates an empty file or directory of fd's type as a mount point.
func makeLike(fd int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o640)
}

var errEscapes = errors.New("it leads out of the volume")

const (
	pathFlags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	maxLinks  = 40 // the kernel's limit
)

// openBeneath opens path below the directory root and creates missing directories. It
// walks element by element and never lets the kernel follow a link: it reads links
// and walks them in the same way, and fails if ".." would leave root.
func openBeneath(root, path string) (int, error) {
	w := &walk{todo: split(path)}
	defer w.close()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	w.open = []int{fd}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, err
	}
	w.dirMode = st.Mode & 0o777
	for len(w.todo) > 0 {
		name := w.todo[0]
		w.todo = w.todo[1:]
		if err := w.step(name); err != nil {
			return -1, err
		}
	}
	return w.take(), nil
}

// walk is a position in a tree: the open directories from the root to the position,
// and the elements that remain.
type walk struct {
	open    []int
	todo    []string
	links   int
	dirMode uint32
}

func (w *walk) here() int { return w.open[len(w.open)-1] }

// take removes the last open descriptor from w and returns it. The caller closes it.
func (w *walk) take() int {
	fd := w.here()
	w.open = w.open[:len(w.open)-1]
	return fd
}

func (w *walk) close() {
	for _, fd := range w.open {
		unix.Close(fd)
	}
}

// step moves to the element name, which may be "..", a link or a missing directory.
func (w *walk) step(name string) error {
	if name == ".." {
		if len(w.open) == 1 {
			return errEscapes
		}
		unix.Close(w.take())
		return nil
	}
	fd, err := unix.Openat(w.here(), name, pathFlags, 0)
	if err == unix.ENOENT {
		fd, err = w.mkdir(name)
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		defer unix.Close(fd)
		return w.follow(fd)
	}
	w.open = append(w.open, fd)
	return nil
}

// mkdir creates a missing directory with the volume's mode, regardless of the umask.
func (w *walk) mkdir(name string) (int, error) {
	if err := unix.Mkdirat(w.here(), name, w.dirMode); err != nil && err != unix.EEXIST {
		return -1, err
	}
	fd, err := unix.Openat(w.here(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Fchmod(fd, st.Mode&(unix.S_ISGID)|w.dirMode)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// follow prepends the target of a link to the remaining elements.
func (w *walk) follow(fd int) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	text := string(buf[:n])
	if filepath.IsAbs(text) {
		return errEscapes
	}
	w.todo = append(split(text), w.todo...)
	return nil
}

// split returns the elements of the path without empty ones and dots.
func split(path string) []string {
	var names []string
	for _, name := range strings.Split(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}
