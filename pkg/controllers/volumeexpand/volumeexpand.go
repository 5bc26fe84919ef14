// Package volumeexpand expands the volumes of claims that request more than they have.
//
// It expands what is provisioned in the cluster itself: the directories of the provisioner
// podium.dev/local-path. For other volumes it records that an external controller is to do
// so. The admission plugin PersistentVolumeClaimResize has checked that the class of the
// claim allows it.
package volumeexpand

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/volumebinding"
)

// Spec describes the controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "persistentvolume-expander-controller", Account: "expand-controller", Component: "volume_expand", Workers: 2,
		New: func(c controller.Context) (controller.Runner, error) { return build(c), nil }}
}

// expander reconciles claims.
type expander struct {
	*loop.Loop
	controller.Context
	claims       *informer.Informer[*corev1.PersistentVolumeClaim]
	volumes      *informer.Informer[*corev1.PersistentVolume]
	nodes        *informer.Informer[*corev1.Node]
	claimWriter  controller.Writer[*corev1.PersistentVolumeClaim]
	volumeWriter controller.Writer[*corev1.PersistentVolume]
}

func build(c controller.Context) *expander {
	e := &expander{
		Context: c,
		claims:  informers.For[*corev1.PersistentVolumeClaim](c.Informers),
		volumes: informers.For[*corev1.PersistentVolume](c.Informers),
		nodes:   informers.For[*corev1.Node](c.Informers),
	}
	e.Loop = c.NewLoop("volume_expand", 0, e.reconcile, e.claims, e.volumes, e.nodes)
	e.claimWriter = controller.NewWriter(c, e.Loop, e.claims)
	e.volumeWriter = controller.NewWriter(c, e.Loop, e.volumes)
	e.claims.OnChange(func(_, claim *corev1.PersistentVolumeClaim) {
		if claim != nil && expands(claim) {
			e.Wake(loop.KeyOf(claim))
		}
	})
	return e
}

func (e *expander) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	claim, ok := e.claims.Get(key.Namespace, key.Name)
	if !ok || !expands(claim) {
		return loop.Done, nil
	}
	v, ok := e.volumes.Get("", claim.Spec.VolumeName)
	if !ok || !volumebinding.Reserved(v, claim) {
		return loop.Done, nil
	}
	node, _ := e.nodes.Get("", volumebinding.Home(v))
	next := decide(claim, v, node, time.Now())
	var err error
	switch {
	case next.Status != nil:
		written := claim.DeepCopy()
		written.Status = *next.Status
		_, err = e.claimWriter.UpdateStatus(ctx, key, written)
	case next.Grow:
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		_, err = e.volumeWriter.Patch(ctx, key, v, types.MergePatchType, map[string]any{
			"metadata": map[string]any{"resourceVersion": v.ResourceVersion},
			"spec":     map[string]any{"capacity": map[string]any{"storage": size.String()}},
		})
		if err == nil {
			e.Wake(key) // the claim has not changed
		}
	}
	if err == nil && next.Reason != "" {
		e.Events.Event(claim, next.EventType, next.Reason, next.Message)
	}
	return loop.Done, err
}
