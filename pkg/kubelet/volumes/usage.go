package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// Limited tells whether the pod has volumes whose size must be watched: empty
// directories on disk with a limit. One in memory cannot outgrow its own.
func Limited(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limitedOnDisk(&pod.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

func limitedOnDisk(v *corev1.Volume) bool {
	e := v.EmptyDir
	return e != nil && e.Medium == corev1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0
}

// Overfull measures the pod's limited volumes. If one has outgrown its limit,
// the pod is to be evicted with this message; "" means that all is well.
func (m *Manager) Overfull(ctx context.Context, pod *corev1.Pod) (message string, err error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !limitedOnDisk(v) {
			continue
		}
		used, err := usage(ctx, m.volumeDir(pod.UID, pluginEmptyDir, v.Name))
		if err != nil {
			return "", fmt.Errorf("measure volume %q: %w", v.Name, err)
		}
		if limit := v.EmptyDir.SizeLimit; used > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String()), nil
		}
	}
	return "", nil
}

// usage is the space a directory takes on its disk. What other links share is
// counted once. It cannot be led out of the directory.
func usage(ctx context.Context, dir string) (int64, error) {
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
