package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/client/informer"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/volumebinding"
)

// reclaimPeriod is the time between two attempts to remove a directory.
const reclaimPeriod = 10 * time.Second

// reclaimer removes the directories of the node's local-path volumes that are being
// deleted, and then the finalizer with which the kubelet has marked them. A volume that
// is merely absent from the API keeps its directory: an administrator may have restored a
// backup that is older than the volume.
type reclaimer struct {
	api     *api
	dirs    *volumes.Manager
	volumes *informer.Informer[*corev1.PersistentVolume]
	events  *events.Recorder
	log     *slog.Logger
	changed chan struct{}
}

func newReclaimer(cfg *Config, api *api, dirs *volumes.Manager, recorder *events.Recorder) *reclaimer {
	r := &reclaimer{api: api, dirs: dirs, events: recorder, log: cfg.Log, changed: make(chan struct{}, 1)}
	r.volumes = informer.New(client.For[*corev1.PersistentVolume](cfg.Client), informer.Options{
		FieldSelector: fields.OneTermEqualSelector(volumebinding.HomeField, cfg.NodeName).String(), Log: cfg.Log, Transform: strip,
	})
	r.volumes.OnChange(func(_, v *corev1.PersistentVolume) {
		if v == nil || !doomed(v) {
			return
		}
		select {
		case r.changed <- struct{}{}:
		default:
		}
	})
	return r
}

// doomed reports whether the kubelet is to let a volume go. A volume that was deleted by
// mistake keeps its data as long as its claim exists.
func doomed(v *corev1.PersistentVolume) bool {
	unbound := v.Status.Phase != corev1.VolumeBound && v.Status.Phase != corev1.VolumePending
	return v.DeletionTimestamp != nil && unbound && volumebinding.Held(v) && volumebinding.IsLocalPath(v)
}

// Run blocks until ctx ends.
func (r *reclaimer) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- r.volumes.Run(ctx) }()
	if err := r.dirs.SweepLocalPaths(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("remove directories of deleted volumes failed", "err", err)
	}
	for {
		var again <-chan time.Time
		if r.reclaim(ctx) {
			again = time.After(reclaimPeriod)
		}
		select {
		case <-ctx.Done():
			return <-done
		case <-r.changed:
		case <-again:
		}
	}
}

// reclaim makes an attempt for each deleted volume. It reports whether one failed.
func (r *reclaimer) reclaim(ctx context.Context) (failed bool) {
	for _, v := range r.volumes.List() {
		if !doomed(v) {
			continue
		}
		if err := r.remove(ctx, v); err != nil && ctx.Err() == nil {
			failed = true
			r.log.Error("remove volume failed", "volume", v.Name, "err", err)
			r.events.Event(v, corev1.EventTypeWarning, "VolumeFailedDelete", err.Error())
		}
	}
	return failed
}

// remove removes the directory of a volume, unless its reclaim policy keeps it, and the
// finalizer.
func (r *reclaimer) remove(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		if err := r.dirs.RemoveLocalPath(ctx, v); err != nil {
			return fmt.Errorf("remove %s: %w", v.Spec.Local.Path, err)
		}
	}
	left := slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool { return f == volumebinding.LocalPath })
	if err := r.api.finalize(ctx, v, left); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	r.log.Info("volume released", "volume", v.Name, "reclaimPolicy", v.Spec.PersistentVolumeReclaimPolicy)
	return nil
}

// HoldVolume adds the kubelet's finalizer to a volume. It fails if the volume has changed.
func (a *api) HoldVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	return a.finalize(ctx, v, append(slices.Clone(v.Finalizers), volumebinding.LocalPath))
}

func (a *api) finalize(ctx context.Context, v *corev1.PersistentVolume, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": v.UID, "resourceVersion": v.ResourceVersion, "finalizers": finalizers,
	}})
	if err == nil {
		_, err = a.volumes.Patch(ctx, v.Name, types.MergePatchType, patch)
	}
	return err
}
