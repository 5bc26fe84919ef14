package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/volumes"
)

// TearDown unpublishes a volume and removes its directory. It needs its driver if the
// directory has a record: without it, nothing was published.
func (d *Driver) TearDown(ctx context.Context, p *volumes.Volume) error {
	r, err := readRecord(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return removeEmpty(filepath.Join(p.Dir, recordFile+".new"), p.Dir)
	}
	if err != nil {
		return err
	}
	unlock, err := d.locks.Lock(ctx, r.id())
	if err != nil {
		return err
	}
	defer unlock()
	s, err := d.open(r.Driver)
	if err != nil {
		return err
	}
	defer s.close()
	pod := types.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(p.Dir)))))
	target := d.target(r, p.Dir, string(pod))
	if _, err := s.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: target}); err != nil {
		return fmt.Errorf("NodeUnpublishVolume: %w", err)
	}
	d.measured.remove(pod, target)
	if err := d.unmount(target); err != nil {
		return err
	}
	if err := removeEmpty(target, filepath.Join(p.Dir, recordFile+".new"), filepath.Join(p.Dir, recordFile), p.Dir); err != nil {
		return err
	}
	if r.persistent() {
		d.release(r, pod)
	}
	return nil
}

// unmount removes what a driver has left mounted at and below a path.
func (d *Driver) unmount(path string) error {
	points, err := d.Mounter.Under(path)
	for _, p := range points {
		err = errors.Join(err, d.Mounter.Unmount(p))
	}
	return err
}

// removeEmpty removes files and directories, in this order. It fails if one of the
// directories is not empty: the data in it might be a volume's. Missing ones are not
// errors.
func removeEmpty(paths ...string) error {
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// release forgets the pod's use of a volume.
func (d *Driver) release(r *record, pod types.UID) {
	d.uses.release(r.id(), pod)
	if r.Attachment != "" {
		d.Node.Check()
	}
}

// The back-off of unstaging.
const (
	firstUnstage = 500 * time.Millisecond
	lastUnstage  = 2 * time.Minute
)

// Run unstages volumes that no pod uses and measures the others, until ctx ends. It creates
// the node's CSINode.
func (d *Driver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { d.createCSINode(ctx); return nil })
	g.Go(func() error { d.measure(ctx); return nil })
	g.Go(func() error { d.updateLimits(ctx); return nil })
	for ctx.Err() == nil {
		next := time.Hour
		for _, r := range d.unused(time.Now(), &next) {
			g.Go(func() error { d.unstage(ctx, r); return nil })
		}
		_ = backoff.SleepOrWake(ctx, next, d.uses.wake)
	}
	return g.Wait()
}

// unused returns the staged volumes that no pod uses and that are due, and marks them as
// busy. next becomes the time until another one is due, if that is sooner.
func (d *Driver) unused(now time.Time, next *time.Duration) []*record {
	d.uses.mu.Lock()
	defer d.uses.mu.Unlock()
	var out []*record
	for _, use := range d.uses.volumes {
		switch {
		case use.staged == nil || use.busy || len(use.pods) > 0:
		case use.due.After(now):
			*next = min(*next, use.due.Sub(now))
		default:
			use.busy = true
			out = append(out, use.staged)
		}
	}
	return out
}

// unstage unstages a volume unless a pod uses it meanwhile. It schedules the next attempt
// if that fails.
func (d *Driver) unstage(ctx context.Context, r *record) {
	err := d.tryUnstage(ctx, r)
	d.uses.mu.Lock()
	defer d.uses.mu.Unlock()
	use := d.uses.volumes[r.id()]
	use.busy = false
	if err != nil && ctx.Err() == nil {
		delay := use.retry.Next()
		use.due = time.Now().Add(delay)
		d.Log.Warn("unstage CSI volume failed", "driver", r.Driver, "volume", r.Volume, "error", err, "retry", delay)
	}
	if err == nil {
		use.retry.Reset()
	}
	d.uses.tidyLocked(r.id())
	select {
	case d.uses.wake <- struct{}{}:
	default:
	}
}

func (d *Driver) tryUnstage(ctx context.Context, r *record) error {
	unlock, err := d.locks.Lock(ctx, r.id())
	if err != nil {
		return err
	}
	defer unlock()
	d.uses.mu.Lock()
	used := len(d.uses.volumes[r.id()].pods) > 0
	d.uses.mu.Unlock()
	if used {
		return nil
	}
	s, err := d.open(r.Driver)
	if err != nil {
		return err
	}
	defer s.close()
	at := d.stagePlace(r)
	d.uses.stage(r.id(), nil) // no longer complete
	d.uses.stage(r.id(), r)
	if _, err := s.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: at.target}); err != nil {
		return fmt.Errorf("NodeUnstageVolume: %w", err)
	}
	if err := d.unmount(at.target); err != nil {
		return err
	}
	if err := removeEmpty(at.target, filepath.Join(at.dir, recordFile+".new"), filepath.Join(at.dir, recordFile), at.dir); err != nil {
		return err
	}
	d.uses.stage(r.id(), nil)
	if r.Attachment != "" {
		d.Node.Check()
	}
	return nil
}
