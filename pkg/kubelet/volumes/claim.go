package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/podspec"
	"podium/pkg/volumebinding"
)

// claim is the driver of persistentVolumeClaim and ephemeral volumes. It finds the volume
// that the claim is bound to. hostPath and local volumes are directories or devices of the
// node, which need no tear-down; others are those of a PersistentDriver.
type claim struct {
	directory
	taking *sync.Mutex // held while a pod takes an exclusive volume
}

func (claim) Name() string { return "kubernetes.io~persistent-volume-claim" }
func (claim) Supports(v *corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
}

func (c claim) SetUp(ctx context.Context, v *Volume) (Mount, error) {
	claimed, err := c.claimed(ctx, v)
	if err != nil {
		return Mount{}, err
	}
	pv := claimed.PV
	if slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteOncePod) {
		if err := c.take(v, pv); err != nil {
			return Mount{}, err
		}
	}
	if d := c.driverOf(pv); d != nil {
		return d.SetUpPersistent(ctx, claimed)
	}
	mount := Mount{ReadOnly: claimed.ReadOnly(), Device: claimed.Device, local: pv.Spec.Local != nil}
	if volumebinding.IsLocalPath(pv) {
		if err := c.setUpLocalPath(ctx, v, pv); err != nil {
			return Mount{}, err
		}
	}
	switch s := &pv.Spec.PersistentVolumeSource; {
	case claimed.Device && s.Local != nil:
		mount.HostPath = s.Local.Path
		return mount, checkHostPath(&corev1.HostPathVolumeSource{Path: s.Local.Path, Type: new(corev1.HostPathBlockDev)})
	case claimed.Device:
	case s.HostPath != nil:
		mount.HostPath = s.HostPath.Path
		return mount, checkHostPath(s.HostPath)
	case s.Local != nil:
		mount.HostPath = s.Local.Path
		return mount, setUpLocal(s.Local, v.Pod, mount.ReadOnly)
	}
	return Mount{}, fmt.Errorf("no volume plugin matched persistent volume %q: Podium mounts hostPath, local, nfs, iscsi and CSI volumes, and block devices of all but hostPath and nfs", pv.Name)
}

// Refresh refreshes the volume of a PersistentDriver.
func (c claim) Refresh(ctx context.Context, v *Volume) error {
	if !c.refreshes(v.Pod) {
		return nil
	}
	claimed, err := c.claimed(ctx, v)
	if err != nil {
		return err
	}
	if d := c.driverOf(claimed.PV); d != nil {
		return d.RefreshPersistent(ctx, claimed)
	}
	return nil
}

// refreshes reports whether a PersistentDriver has a directory of the pod.
func (c claim) refreshes(pod *corev1.Pod) bool {
	for _, d := range c.host.Drivers {
		if _, ok := d.(PersistentDriver); !ok {
			continue
		}
		if _, err := os.Lstat(c.host.volumeDir(pod.UID, d.Name(), "")); err == nil {
			return true
		}
	}
	return false
}

// driverOf returns the driver of a persistent volume; nil: none.
func (c claim) driverOf(pv *corev1.PersistentVolume) PersistentDriver {
	for _, d := range c.host.Drivers {
		if p, ok := d.(PersistentDriver); ok && p.SupportsPersistent(pv) {
			return p
		}
	}
	return nil
}

// Dir returns the directory of the pod's volume of a driver.
func (c *Claimed) Dir(driver string) string {
	return c.host.volumeDir(c.pod, driver, c.PV.Name)
}

// claimed finds the persistent volume of a volume, and checks that the containers use it
// in its mode.
func (c claim) claimed(ctx context.Context, v *Volume) (*Claimed, error) {
	pvc, pv, err := c.volumeOf(ctx, v.Pod, v.Spec)
	if err != nil {
		return nil, err
	}
	device := pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
	for container := range podspec.Containers(v.Pod) {
		mounts := slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Spec.Name })
		devices := slices.ContainsFunc(container.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == v.Spec.Name })
		if device && mounts {
			return nil, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", v.Spec.Name)
		}
		if !device && devices {
			return nil, fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", v.Spec.Name)
		}
	}
	return &Claimed{v, pvc, pv, device}, nil
}

// volumeOf returns the claim of a pod's volume, and the volume that it is bound to.
func (c claim) volumeOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	name := volumebinding.ClaimName(pod, v)
	pvc, err := c.host.Sources.Claim(ctx, pod.Namespace, name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: failed to fetch PVC from API server: %w", pod.Namespace, name, err)
	case pvc.DeletionTimestamp != nil:
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: PVC is being deleted", pod.Namespace, name)
	case pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "":
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: PVC is not bound", pod.Namespace, name)
	}
	if err := volumebinding.CheckOwner(pod, v, pvc); err != nil {
		return nil, nil, err
	}
	pv, err := c.host.Sources.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: failed to fetch PV %s from API server: %w", pod.Namespace, name, pvc.Spec.VolumeName, err)
	}
	if ref := pv.Spec.ClaimRef; !volumebinding.Reserved(pv, pvc) || ref.UID == "" {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: PV %s is not bound to it", pod.Namespace, name, pv.Name)
	}
	return pvc, pv, nil
}

// take records that a pod uses a volume with the access mode ReadWriteOncePod. It fails if
// another pod of the node uses it. The scheduler does not place such pods, but they may name
// their node themselves.
func (c claim) take(v *Volume, pv *corev1.PersistentVolume) error {
	c.taking.Lock()
	defer c.taking.Unlock()
	other, err := c.host.userOf(pv.Name, v.pod)
	if err != nil {
		return err
	}
	if other != "" {
		return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return v.recordUse(pv)
}

// recordUse records on disk that the pod uses a persistent volume. The record stays until
// the volumes of the pod are torn down.
func (v *Volume) recordUse(pv *corev1.PersistentVolume) error {
	if err := os.MkdirAll(v.StateDir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(v.StateDir, pv.Name), nil, 0o600)
}

// userOf returns a pod for which the use of a persistent volume is recorded, other than one
// pod; "" if there is none.
func (c *Config) userOf(volume string, except types.UID) (types.UID, error) {
	pods, err := readDir(c.podsDir())
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		uid := types.UID(pod.Name())
		dir := c.stateDir(uid, claim{}.Name())
		records, err := readDir(dir)
		if err != nil {
			return "", err
		}
		for _, r := range records {
			_, err := os.Lstat(filepath.Join(dir, r.Name(), volume))
			if err == nil && uid != except {
				return uid, nil
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
	}
	return "", nil
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
	return Own(s.Path, *group, pod, false)
}

// Own gives a directory and all that it contains to a group, as the pod's
// fsGroupChangePolicy says. again means that it may have done so before: then it only
// completes what was interrupted.
func Own(dir string, group int64, pod *corev1.Pod, again bool) error {
	policy := changePolicy(pod)
	if again {
		policy = corev1.FSGroupChangeOnRootMismatch
	}
	return ownTree(dir, int(group), policy)
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
