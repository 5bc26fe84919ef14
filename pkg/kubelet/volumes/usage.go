package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// SizeLimit returns the size limit that the kubelet must enforce: that of an emptyDir
// on disk, since the kernel enforces that of a tmpfs. nil: no limit.
func SizeLimit(v *corev1.Volume) *resource.Quantity {
	e := v.EmptyDir
	if e == nil || e.Medium != corev1.StorageMediumDefault || e.SizeLimit == nil || e.SizeLimit.Sign() <= 0 {
		return nil
	}
	return e.SizeLimit
}

// Usage returns the bytes that the pod's volumes use on the node's disk, by volume
// name. It omits volumes that are not on disk (see DiskUser).
func (m *Manager) Usage(ctx context.Context, pod *corev1.Pod) (map[string]int64, error) {
	out := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		d := m.driver(v)
		if u, ok := d.(DiskUser); !ok || !u.OnDisk(v) {
			continue
		}
		used, err := DiskUsage(ctx, m.volumeDir(pod.UID, d.Name(), v.Name))
		if err != nil {
			return nil, fmt.Errorf("measure volume %q: %w", v.Name, err)
		}
		out[v.Name] = used
	}
	return out, nil
}

// DiskUsage returns the number of bytes that a directory uses on disk; 0 if it does
// not exist. It counts hard links once and does not follow links out of dir.
func DiskUsage(ctx context.Context, dir string) (int64, error) {
	used, err := usageOf(ctx, dir)
	return used.bytes, err
}

// FileUsage returns the number of bytes that a file uses on disk; 0 if it does not exist. It
// does not follow a link.
func FileUsage(path string) (int64, error) {
	var st syscall.Stat_t
	err := syscall.Lstat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return st.Blocks * 512, nil
}

// usage is what a directory uses on disk.
type usage struct {
	bytes  int64
	inodes uint64
}

// usageOf measures a directory as DiskUsage does.
func usageOf(ctx context.Context, dir string) (used usage, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return used, nil // not set up
	}
	if err != nil {
		return used, err
	}
	defer root.Close()
	type file struct{ dev, ino uint64 }
	shared := map[file]bool{}
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil // removed meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if id := (file{st.Dev, st.Ino}); st.Nlink > 1 && !d.IsDir() {
			if shared[id] {
				return nil
			}
			shared[id] = true
		}
		used.bytes += st.Blocks * 512
		used.inodes++
		return nil
	})
	return used, err
}
