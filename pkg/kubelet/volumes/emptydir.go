package volumes

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// setUpEmptyDir makes dir an empty directory, once: a marker beside it says
// that it is done, so that what containers did to it survives our restart.
// After a reboot a memory-backed one is gone, and made anew.
func (m *Manager) setUpEmptyDir(pod *corev1.Pod, v *corev1.Volume, dir string) error {
	memory := false
	switch v.EmptyDir.Medium {
	case corev1.StorageMediumDefault:
	case corev1.StorageMediumMemory:
		memory = true
	default:
		return fmt.Errorf("unknown storage medium %q", v.EmptyDir.Medium)
	}
	marker := filepath.Join(m.emptyDirs(pod.UID), v.Name, "ready")
	if m.isDone(marker, dir, memory) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if memory {
		if err := m.mountTmpfs(dir, m.memorySize(pod, v.EmptyDir)); err != nil {
			return err
		}
	}
	if err := ownDir(dir, fsGroup(pod), true); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(marker), 0o750); err != nil {
		return err
	}
	return os.WriteFile(marker, nil, 0o640)
}

func (m *Manager) isDone(marker, dir string, memory bool) bool {
	if _, err := os.Lstat(marker); err != nil {
		return false
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return false
	}
	return !memory || m.isMountPoint(dir)
}

func (m *Manager) isMountPoint(dir string) bool {
	points, err := m.Mounter.Under(dir)
	return err == nil && slices.Contains(points, dir)
}

// mountTmpfs puts a memory file system on dir, unless one is there.
func (m *Manager) mountTmpfs(dir string, size int64) error {
	points, err := m.Mounter.Under(dir)
	if err != nil {
		return err
	}
	if slices.Contains(points, dir) {
		return nil
	}
	if err := m.Mounter.Tmpfs(dir, size); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

// memorySize is how large a memory file system of the pod may grow: the least
// of its size limit, the pod's memory limit and the node's allocatable memory.
// 0 when none is known. source is nil for the volumes we fill ourselves.
func (m *Manager) memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) int64 {
	var size int64
	least := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	if node := m.Node(); node != nil {
		least(node.Status.Allocatable.Memory().Value())
	}
	least(podMemoryLimit(pod))
	if source != nil && source.SizeLimit != nil {
		least(source.SizeLimit.Value())
	}
	return size
}

// podMemoryLimit is 0 when some container has none.
func podMemoryLimit(pod *corev1.Pod) int64 {
	if r := pod.Spec.Resources; r != nil && r.Limits.Memory().Value() > 0 {
		return r.Limits.Memory().Value()
	}
	var sum, largest int64
	for i := range pod.Spec.Containers {
		limit := pod.Spec.Containers[i].Resources.Limits.Memory().Value()
		if limit == 0 {
			return 0
		}
		sum += limit
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		limit := c.Resources.Limits.Memory().Value()
		if limit == 0 {
			return 0
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sum += limit
			continue
		}
		largest = max(largest, limit)
	}
	return max(sum, largest)
}

func fsGroup(pod *corev1.Pod) *int64 {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// ownDir gives a volume's directory its mode and the pod's group. Files made
// in it later take the group over (setgid).
func ownDir(dir string, group *int64, writable bool) error {
	mode := fs.FileMode(0o777)
	if group != nil {
		if err := os.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
		mode |= groupBits(true, writable)
	}
	return os.Chmod(dir, mode)
}

// groupBits are the mode bits that let a pod's fsGroup use a file.
func groupBits(dir, writable bool) fs.FileMode {
	bits := fs.FileMode(0o440)
	if writable {
		bits = 0o660
	}
	if dir {
		bits |= 0o110 | fs.ModeSetgid
	}
	return bits
}
