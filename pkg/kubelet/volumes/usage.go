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

// SizeLimit is the size that the kubelet must hold the volume to: that of an
// emptyDir on disk. The kernel holds one in memory to its own. nil: no limit.
func SizeLimit(v *corev1.Volume) *resource.Quantity {
	e := v.EmptyDir
	if e == nil || e.Medium != corev1.StorageMediumDefault || e.SizeLimit == nil || e.SizeLimit.Sign() <= 0 {
		return nil
	}
	return e.SizeLimit
}

// Usage measures the bytes that the pod's emptyDir and configMap volumes take
// on the node's disk, by the volume's name. A volume in memory is left out.
func (m *Manager) Usage(ctx context.Context, pod *corev1.Pod) (map[string]int64, error) {
	out := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		plugin := pluginConfigMap
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault:
			plugin = pluginEmptyDir
		case v.ConfigMap == nil:
			continue
		}
		used, err := DiskUsage(ctx, m.volumeDir(pod.UID, plugin, v.Name))
		if err != nil {
			return nil, fmt.Errorf("measure volume %q: %w", v.Name, err)
		}
		out[v.Name] = used
	}
	return out, nil
}

// DiskUsage is the number of bytes that a directory takes on its disk; 0 if it
// does not exist. What several links share counts once. The walk cannot be led
// out of the directory.
func DiskUsage(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // not set up
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	type file struct{ dev, ino uint64 }
	shared := map[file]bool{}
	var used int64
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
		used += st.Blocks * 512
		return nil
	})
	return used, err
}
