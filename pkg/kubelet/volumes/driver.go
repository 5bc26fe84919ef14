package volumes

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Driver handles the volumes of one source. The Manager calls it for several volumes
// concurrently, but calls only one method at a time for one volume.
type Driver interface {
	// Name returns the name of the driver's directories: one path element that never
	// changes, because a restarted kubelet finds the driver of a volume on disk by it.
	Name() string
	// Supports reports whether the driver handles the volume.
	Supports(v *corev1.Volume) bool
	// SetUp makes the volume ready and returns what containers mount. It may block
	// for long, but must return soon after ctx ends. It creates v.Dir before
	// anything that TearDown must undo. It is called again after an error, and by a
	// restarted kubelet for a volume that is ready; then it must keep what containers
	// have written.
	SetUp(ctx context.Context, v *Volume) (Mount, error)
	// TearDown undoes a complete or partial SetUp and removes v.Dir. It must rely on
	// the disk only: v.Pod and v.Spec are nil. A Driver whose volumes are ordinary
	// directories and mounts embeds directory for it.
	TearDown(ctx context.Context, v *Volume) error
}

// Refresher is a Driver whose volumes have contents that change while a pod runs.
type Refresher interface {
	// Refresh updates the contents of a ready volume. On an error it keeps the old
	// contents.
	Refresh(ctx context.Context, v *Volume) error
}

// PersistentDriver is a Driver that also handles persistent volumes. It keeps them in
// directories of its own name, from which its TearDown is called.
type PersistentDriver interface {
	Driver
	// SupportsPersistent reports whether the driver handles the persistent volume.
	SupportsPersistent(pv *corev1.PersistentVolume) bool
	// SetUpPersistent is as SetUp. It creates c.Dir(d.Name()) instead of c.Volume.Dir.
	SetUpPersistent(ctx context.Context, c *Claimed) (Mount, error)
	// RefreshPersistent is as Refresh.
	RefreshPersistent(ctx context.Context, c *Claimed) error
}

// Claimed is a persistent volume that a volume of a pod claims.
type Claimed struct {
	*Volume
	Claim  *corev1.PersistentVolumeClaim
	PV     *corev1.PersistentVolume
	Device bool // containers get the block device, not a file system
}

// ReadOnly reports whether the pod asks for a volume that it cannot write to.
func (c *Claimed) ReadOnly() bool {
	p := c.Spec.PersistentVolumeClaim
	return p != nil && p.ReadOnly
}

// DiskUser is a Driver whose volumes may use space on the node's disk.
type DiskUser interface {
	// OnDisk reports whether the volume counts as local storage of the pod.
	OnDisk(v *corev1.Volume) bool
}

// Volume is one volume of one pod, as passed to its Driver.
type Volume struct {
	Pod      *corev1.Pod    // as of the call
	Spec     *corev1.Volume // of Pod
	Dir      string         // what containers mount, unless SetUp returns another path
	StateDir string         // the driver's state across restarts; removed after Dir

	host   *Config
	pod    types.UID
	name   string
	turn   chan struct{} // semaphore of size 1, held during a call
	ready  *Mount        // nil before SetUp has succeeded
	gauge  atomic.Pointer[gauge]
	frozen map[string]any
	tokens map[tokenKey]*heldToken
}

// Mount describes how a container mounts a volume.
type Mount struct {
	HostPath string
	ReadOnly bool // mount the volume read-only even if the container does not request it
	Device   bool // HostPath is a block device

	local bool // a local volume: HostPath is, or is in, what has the volume's size

	pod         types.UID // for SubPath
	volume, key string
}

// lock blocks until no other call uses the volume, or ctx ends.
func (v *Volume) lock(ctx context.Context) error {
	select {
	case v.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *Volume) unlock() { <-v.turn }

// directory implements TearDown for volumes that are directories and mounts.
type directory struct{ host *Config }

func (d directory) TearDown(_ context.Context, v *Volume) error { return d.host.remove(v.Dir) }
