package csi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/attachment"
	"podium/pkg/backoff"
)

// uses records which pods use which volume, and which volumes are staged. It is what the
// records on disk say, and the pods that wait for an attachment.
type uses struct {
	mu      sync.Mutex
	volumes map[id]*use
	wake    chan struct{} // signals a volume that may have to be unstaged
}

// use is the use of one persistent volume.
type use struct {
	pods     map[types.UID]bool
	attached bool    // the volume is listed in the node's status
	staged   *record // nil: not staged
	complete bool    // the staging has succeeded
	busy     bool    // it is being unstaged
	due      time.Time
	retry    backoff.Backoff // of unstaging
}

func newUses() uses { return uses{volumes: map[id]*use{}, wake: make(chan struct{}, 1)} }

// at returns the use of a volume. The caller holds u.mu.
func (u *uses) at(v id) *use {
	if u.volumes[v] == nil {
		u.volumes[v] = &use{pods: map[types.UID]bool{}, retry: backoff.Backoff{Initial: firstUnstage, Max: lastUnstage}}
	}
	return u.volumes[v]
}

// hold adds a pod that uses a volume. It reports whether the pod is new to it.
func (u *uses) hold(v id, pod types.UID, attached bool) (added bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use := u.at(v)
	added = !use.pods[pod]
	use.pods[pod], use.attached = true, use.attached || attached
	return added
}

// release removes a pod that no longer uses a volume.
func (u *uses) release(v id, pod types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use := u.at(v)
	delete(use.pods, pod)
	u.tidyLocked(v)
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// stage records that a volume is being staged, or that it no longer is (nil). It reports
// whether it was staged before.
func (u *uses) stage(v id, r *record) (complete bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use := u.at(v)
	complete = use.complete
	use.staged, use.complete, use.attached = r, r != nil && complete, use.attached || r != nil && r.Attachment != ""
	u.tidyLocked(v)
	return complete
}

// staged records that the staging of a volume has succeeded.
func (u *uses) staged(v id) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at(v).complete = true
}

func (u *uses) tidyLocked(v id) {
	if use := u.volumes[v]; len(use.pods) == 0 && use.staged == nil && !use.busy {
		delete(u.volumes, v)
	}
}

// InUse returns the attached volumes that the node uses, for its status.
func (d *Driver) InUse() []corev1.UniqueVolumeName {
	d.uses.mu.Lock()
	defer d.uses.mu.Unlock()
	var out []corev1.UniqueVolumeName
	for v, use := range d.uses.volumes {
		if use.attached {
			out = append(out, attachment.Volume(v.driver, v.handle))
		}
	}
	slices.Sort(out)
	return out
}

// recover reads the records on disk. It leaves out records that it cannot read: the
// tear-down of the pod reports them.
func (d *Driver) recover() error {
	pods, err := filepath.Glob(filepath.Join(d.Root, "pods", "*", "volumes", name, "*"))
	if err != nil {
		return err
	}
	for _, dir := range pods {
		if r, err := readRecord(dir); err == nil && r.persistent() {
			pod := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir))))
			d.uses.hold(r.id(), types.UID(pod), r.Attachment != "")
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.Log.Warn("read record of CSI volume failed", "error", err)
		}
	}
	for _, pattern := range []string{filepath.Join("*", "*"), filepath.Join(devicesDir, "*", "data")} {
		staged, err := filepath.Glob(filepath.Join(d.pluginDir(), pattern, recordFile))
		if err != nil {
			return err
		}
		for _, file := range staged {
			r, err := readRecord(filepath.Dir(file))
			if err != nil {
				d.Log.Warn("read record of staged CSI volume failed", "error", err)
				continue
			}
			d.uses.stage(r.id(), r)
		}
	}
	return nil
}

// exists reports whether a record is in a directory.
func exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, recordFile))
	return err == nil
}
