package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/podspec"
)

// emptyDir is the driver of emptyDir volumes, on disk, in memory and in huge pages.
type emptyDir struct{ directory }

func (emptyDir) Name() string                   { return "kubernetes.io~empty-dir" }
func (emptyDir) Supports(v *corev1.Volume) bool { return v.EmptyDir != nil }
func (emptyDir) OnDisk(v *corev1.Volume) bool {
	return v.EmptyDir.Medium == corev1.StorageMediumDefault
}

func (d emptyDir) SetUp(_ context.Context, v *Volume) (Mount, error) {
	source := v.Spec.EmptyDir
	switch source.Medium {
	case corev1.StorageMediumDefault:
		return d.make(v, nil)
	case corev1.StorageMediumMemory:
		return d.make(v, func() error { return d.host.mountTmpfs(v.Dir, d.host.memorySize(v.Pod, source)) })
	}
	size, err := pageSize(v.Pod, source.Medium)
	if err != nil {
		return Mount{}, err
	}
	return d.make(v, func() error {
		var limit int64
		if source.SizeLimit != nil {
			limit = source.SizeLimit.Value()
		}
		return d.host.mount("hugetlbfs", v.Dir, sized([]string{"mode=0777", fmt.Sprintf("pagesize=%d", size)}, limit)...)
	})
}

// pageSize returns the size of the huge pages of a volume in bytes: that of its medium, or the only
// one that the pod or its containers ask for.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	size, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
	switch asked := pageSizes(pod); {
	case ok:
	case medium != corev1.StorageMediumHugePages:
		return 0, fmt.Errorf("unknown storage medium %q", medium)
	case len(asked) != 1:
		return 0, fmt.Errorf("the storage medium %s needs limits of huge pages of one size, not of %d: name the size in the medium", medium, len(asked))
	default:
		size = asked[0]
	}
	q, err := resource.ParseQuantity(size)
	if err != nil {
		return 0, fmt.Errorf("size of huge pages %q: %w", size, err)
	}
	return q.Value(), nil
}

// pageSizes returns the sizes of huge pages that the pod or its containers ask for.
func pageSizes(pod *corev1.Pod) (out []string) {
	look := func(limits corev1.ResourceList) {
		for name := range limits {
			if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok && !slices.Contains(out, size) {
				out = append(out, size)
			}
		}
	}
	if r := pod.Spec.Resources; r != nil {
		look(r.Limits)
	}
	for c := range podspec.Containers(pod) {
		look(c.Resources.Limits)
	}
	return out
}

// make creates the empty directory of the volume once. A marker in StateDir records
// that this is done, so that the contents survive a restart of the kubelet. mount,
// if not nil, mounts a file system on the directory. That does not survive a reboot;
// then make creates the volume again.
func (d emptyDir) make(v *Volume, mount func() error) (Mount, error) {
	out := Mount{HostPath: v.Dir}
	marker := filepath.Join(v.StateDir, "ready")
	if d.isDone(marker, v.Dir, mount != nil) {
		return out, nil
	}
	if err := os.MkdirAll(v.Dir, 0o755); err != nil {
		return out, err
	}
	if mount != nil {
		if err := mount(); err != nil {
			return out, err
		}
	}
	if err := ownDir(v.Dir, fsGroup(v.Pod), true); err != nil {
		return out, err
	}
	if err := os.MkdirAll(v.StateDir, 0o750); err != nil {
		return out, err
	}
	return out, os.WriteFile(marker, nil, 0o640)
}

func (d emptyDir) isDone(marker, dir string, mounted bool) bool {
	if _, err := os.Lstat(marker); err != nil {
		return false
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return false
	}
	if !mounted {
		return true
	}
	is, err := d.host.isMountPoint(dir)
	return err == nil && is
}

func (c *Config) isMountPoint(dir string) (bool, error) {
	points, err := c.Mounter.Under(dir)
	return slices.Contains(points, dir), err
}

// mount mounts a file system on dir, unless something is mounted there.
func (c *Config) mount(fsType, dir string, options ...string) error {
	if is, err := c.isMountPoint(dir); err != nil || is {
		return err
	}
	if err := c.Mounter.Mount(fsType, dir, strings.Join(options, ",")); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fsType, dir, err)
	}
	return nil
}

// mountTmpfs mounts a tmpfs on dir, unless something is mounted there. The tmpfs does
// not use swap if the kernel supports that (6.4). size is in bytes; 0: the kernel's
// default.
func (c *Config) mountTmpfs(dir string, size int64) error {
	options := sized([]string{"mode=0777"}, size)
	err := c.mount("tmpfs", dir, append(options, "noswap")...)
	if errors.Is(err, unix.EINVAL) {
		err = c.mount("tmpfs", dir, options...)
	}
	return err
}

// sized adds the mount option for the size of a file system, unless size is 0.
func sized(options []string, size int64) []string {
	if size > 0 {
		options = append(options, fmt.Sprintf("size=%d", size))
	}
	return options
}

// memorySize returns the maximum size of a tmpfs of the pod in bytes: the minimum of
// the size limit, the pod's memory limit and the node's allocatable memory; 0 if none
// is known. source is nil for volumes that the kubelet fills.
func (c *Config) memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) int64 {
	var size int64
	least := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	if node := c.Node(); node != nil {
		least(node.Status.Allocatable.Memory().Value())
	}
	least(podMemoryLimit(pod))
	if source != nil && source.SizeLimit != nil {
		least(source.SizeLimit.Value())
	}
	return size
}

// podMemoryLimit returns the memory limit of the pod in bytes; 0 if a container has
// none.
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

// ownDir sets the mode and, if group is not nil, the group of a volume's directory.
// Files created in it inherit the group (setgid).
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

// groupBits returns the mode bits that give a pod's fsGroup access to a file.
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
