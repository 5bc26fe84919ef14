package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/volumebinding"
)

// claim is the driver of persistentVolumeClaim volumes. It finds the volume that the
// claim is bound to; hostPath and local volumes are directories of the node, which need
// no tear-down.
type claim struct{ directory }

func (claim) Name() string                   { return "kubernetes.io~persistent-volume-claim" }
func (claim) Supports(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil }

func (c claim) SetUp(ctx context.Context, v *Volume) (Mount, error) {
	source := v.Spec.PersistentVolumeClaim
	pv, err := c.volumeOf(ctx, v.Pod, source.ClaimName)
	if err != nil {
		return Mount{}, err
	}
	if pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return Mount{}, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", v.Spec.Name)
	}
	mount := Mount{ReadOnly: source.ReadOnly}
	switch s := &pv.Spec.PersistentVolumeSource; {
	case s.HostPath != nil:
		mount.HostPath = s.HostPath.Path
		return mount, checkHostPath(s.HostPath)
	case s.Local != nil:
		mount.HostPath = s.Local.Path
		return mount, setUpLocal(s.Local, v.Pod, source.ReadOnly)
	}
	return Mount{}, fmt.Errorf("no volume plugin matched persistent volume %q: Podium mounts hostPath and local volumes", pv.Name)
}

// volumeOf returns the volume that a claim of a pod is bound to.
func (c claim) volumeOf(ctx context.Context, pod *corev1.Pod, name string) (*corev1.PersistentVolume, error) {
	pvc, err := c.host.Sources.Claim(ctx, pod.Namespace, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("error processing PVC %s/%s: failed to fetch PVC from API server: %w", pod.Namespace, name, err)
	case pvc.DeletionTimestamp != nil:
		return nil, fmt.Errorf("error processing PVC %s/%s: PVC is being deleted", pod.Namespace, name)
	case pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "":
		return nil, fmt.Errorf("error processing PVC %s/%s: PVC is not bound", pod.Namespace, name)
	}
	pv, err := c.host.Sources.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: failed to fetch PV %s from API server: %w", pod.Namespace, name, pvc.Spec.VolumeName, err)
	}
	if ref := pv.Spec.ClaimRef; !volumebinding.Reserved(pv, pvc) || ref.UID == "" {
		return nil, fmt.Errorf("error processing PVC %s/%s: PV %s is not bound to it", pod.Namespace, name, pv.Name)
	}
	return pv, nil
}

// setUpLocal checks the directory of a local volume, and gives it to the pod's fsGroup.
func setUpLocal(s *corev1.LocalVolumeSource, pod *corev1.Pod, readOnly bool) error {
	info, err := os.Stat(s.Path)
	if err != nil {
		return fmt.Errorf("local volume: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("local volume: %s is not a directory", s.Path)
	}
	group := fsGroup(pod)
	if group == nil || readOnly {
		return nil
	}
	return ownTree(s.Path, int(*group), changePolicy(pod))
}

func changePolicy(pod *corev1.Pod) corev1.PodFSGroupChangePolicy {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroupChangePolicy != nil {
		return *sc.FSGroupChangePolicy
	}
	return corev1.FSGroupChangeAlways
}

// ownTree gives a directory and all that it contains to a group. With OnRootMismatch it
// does so only if the directory itself does not belong to the group yet. It changes the
// top last, so that the work is repeated if it was interrupted, and never follows a
// symbolic link out of the directory: containers may write there meanwhile.
func ownTree(dir string, group int, policy corev1.PodFSGroupChangePolicy) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat("."); err != nil || policy == corev1.FSGroupChangeOnRootMismatch && owned(info, group) {
		return err
	}
	var dirs []string // children before parents, read backwards
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
			return nil
		}
		return ownEntry(root, path, group)
	})
	for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
		err = ownEntry(root, dirs[i], group)
	}
	return err
}

// ownEntry gives a file or directory to a group. The links themselves are changed, not
// what they lead to.
func ownEntry(root *os.Root, path string, group int) error {
	info, err := root.Lstat(path)
	if err == nil {
		err = root.Lchown(path, -1, group)
	}
	if err == nil && (info.IsDir() || info.Mode().IsRegular()) {
		err = root.Chmod(path, info.Mode()|groupBits(info.IsDir(), true))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// owned reports whether a directory belongs to a group and has the mode bits that give
// the group access.
func owned(info fs.FileInfo, group int) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	bits := groupBits(true, true)
	return ok && int(stat.Gid) == group && info.Mode()&bits == bits
}
