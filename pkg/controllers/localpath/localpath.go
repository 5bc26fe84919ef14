package localpath

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/volumebinding"
)

// retry is the period in which a claim that is refused, and a volume whose node is gone,
// are looked at again.
const retry = time.Minute

// Spec describes the controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "local-path-provisioner-controller", Account: "local-path-provisioner", Component: volumebinding.LocalPath, Workers: 2,
		New: func(c controller.Context) (controller.Runner, error) { return build(c), nil }}
}

// provisioner reconciles claims, whose keys have a namespace, and volumes, whose keys have
// none.
type provisioner struct {
	*loop.Loop
	controller.Context
	claims       *informer.Informer[*corev1.PersistentVolumeClaim]
	volumes      *informer.Informer[*corev1.PersistentVolume]
	classes      *informer.Informer[*storagev1.StorageClass]
	nodes        *informer.Informer[*corev1.Node]
	live         client.Resource[*corev1.Node]
	claimWriter  controller.Writer[*corev1.PersistentVolumeClaim]
	volumeWriter controller.Writer[*corev1.PersistentVolume]
}

func build(c controller.Context) *provisioner {
	p := &provisioner{
		Context: c,
		claims:  informers.For[*corev1.PersistentVolumeClaim](c.Informers),
		volumes: informers.For[*corev1.PersistentVolume](c.Informers),
		classes: informers.For[*storagev1.StorageClass](c.Informers),
		nodes:   informers.For[*corev1.Node](c.Informers),
		live:    client.For[*corev1.Node](c.Client),
	}
	p.Loop = c.NewLoop("local_path_provisioner", 0, p.reconcile, p.claims, p.volumes, p.classes, p.nodes)
	p.claimWriter = controller.NewWriter(c, p.Loop, p.claims)
	p.volumeWriter = controller.NewWriter(c, p.Loop, p.volumes)
	p.claims.OnChange(func(_, claim *corev1.PersistentVolumeClaim) {
		if claim != nil && wanted(claim) {
			p.Wake(loop.KeyOf(claim))
		}
	})
	p.volumes.OnChange(func(_, v *corev1.PersistentVolume) {
		if v != nil && volumebinding.IsLocalPath(v) {
			p.Wake(loop.KeyOf(v))
		}
	})
	return p
}

func (p *provisioner) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if key.Namespace == "" {
		return p.volume(ctx, key)
	}
	claim, ok := p.claims.Get(key.Namespace, key.Name)
	if !ok || !wanted(claim) {
		return loop.Done, nil
	}
	node, err := p.node(ctx, claim.Annotations[volumebinding.SelectedNode])
	if err != nil {
		return loop.Done, err
	}
	class, _ := p.classes.Get("", volumebinding.ClassOf(claim))
	todo := decide(claim, class, node)
	if todo.Refuse != "" {
		p.Events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", todo.Refuse)
	}
	switch {
	case todo.Create != nil:
		return loop.Done, p.create(ctx, key, claim, todo.Create)
	case todo.Reschedule:
		return loop.After(retry), p.reschedule(ctx, key, claim)
	case todo.Refuse != "":
		return loop.After(retry), nil
	}
	return loop.Done, nil
}

// node returns a node, nil if it does not exist. It asks the API before a node counts as
// absent: it may be new.
func (p *provisioner) node(ctx context.Context, name string) (*corev1.Node, error) {
	if name == "" {
		return nil, nil
	}
	if node, ok := p.nodes.Get("", name); ok {
		return node, nil
	}
	node, err := p.live.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

// create creates a volume. It is not an error if it exists: its name is derived from the
// claim's UID.
func (p *provisioner) create(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	if _, exists := p.volumes.Get("", v.Name); exists {
		return nil
	}
	_, err := p.volumeWriter.Create(ctx, key, v)
	switch {
	case apierrors.IsAlreadyExists(err):
		p.volumeWriter.Exists(key, "", v.Name)
		return nil
	case err != nil:
		p.Events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "create persistentvolume: %v", err)
		return err
	}
	p.Events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", v.Name)
	return nil
}

// reschedule removes the selected node from a claim.
func (p *provisioner) reschedule(ctx context.Context, key loop.Key, claim *corev1.PersistentVolumeClaim) error {
	_, err := p.claimWriter.Patch(ctx, key, claim, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"resourceVersion": claim.ResourceVersion, "annotations": map[string]any{volumebinding.SelectedNode: nil},
	}})
	return err
}

// volume deletes a volume whose claim is gone, and reports a deleted one whose directory
// no kubelet can remove.
func (p *provisioner) volume(ctx context.Context, key loop.Key) (loop.Result, error) {
	v, ok := p.volumes.Get("", key.Name)
	if !ok || !volumebinding.IsLocalPath(v) {
		return loop.Done, nil
	}
	if v.DeletionTimestamp == nil {
		if v.Status.Phase != corev1.VolumeReleased || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			return loop.Done, nil
		}
		_, err := p.volumeWriter.Delete(ctx, key, v, controller.Unchanged(v))
		return loop.Done, err
	}
	home := volumebinding.Home(v)
	if !volumebinding.Held(v) || home == "" {
		return loop.Done, nil
	}
	node, err := p.node(ctx, home)
	if err != nil {
		return loop.Done, err
	}
	if node == nil {
		p.Events.Eventf(v, corev1.EventTypeWarning, "VolumeFailedDelete",
			"the directory %s is on node %q, which does not exist. To give up the data, remove the finalizer %s from the volume", v.Spec.Local.Path, home, volumebinding.LocalPath)
	}
	return loop.After(retry), nil
}
