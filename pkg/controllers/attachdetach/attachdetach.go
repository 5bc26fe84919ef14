package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/attachment"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/intree"
	"podium/pkg/volumebinding"
)

// Spec describes the controller. noForce disables the detachment from unhealthy nodes
// whose kubelet may still use the volume.
func Spec(noForce bool) controller.Spec {
	return controller.Spec{Name: "persistentvolume-attach-detach-controller", Account: "attachdetach-controller",
		// One worker: two nodes must not get the same volume at the same time.
		Workers: 1,
		New:     func(c controller.Context) (controller.Runner, error) { return build(c, noForce), nil }}
}

// reconciler has a key for each node.
type reconciler struct {
	controller.Context
	*loop.Loop
	noForce bool

	nodes       *informer.Informer[*corev1.Node]
	pods        *informer.Informer[*corev1.Pod]
	claims      *informer.Informer[*corev1.PersistentVolumeClaim]
	volumes     *informer.Informer[*corev1.PersistentVolume]
	drivers     *informer.Informer[*storagev1.CSIDriver]
	attachments *informer.Informer[*storagev1.VolumeAttachment]

	podsOn     func(node string) []*corev1.Pod
	podsOf     func(claim string) []*corev1.Pod
	attachedTo func(node string) []*storagev1.VolumeAttachment
	attachedOf func(volume string) []*storagev1.VolumeAttachment
	volumesOf  func(disk string) []*corev1.PersistentVolume
	nodesWith  func(disk string) []*corev1.Node // whose status lists it

	writeNode       controller.Writer[*corev1.Node]
	writeAttachment controller.Writer[*storagev1.VolumeAttachment]

	mu       sync.Mutex
	created  map[string]*storagev1.VolumeAttachment // ours, which the informer does not show yet
	unwanted map[string]time.Time                   // by attachment: since when no pod needs it

	told map[string]string // by node and volume: the last event; only the worker uses it
}

func build(c controller.Context, noForce bool) *reconciler {
	s := c.Informers
	r := &reconciler{
		Context: c, noForce: noForce,
		nodes: informers.For[*corev1.Node](s), pods: informers.For[*corev1.Pod](s), claims: informers.For[*corev1.PersistentVolumeClaim](s),
		volumes: informers.For[*corev1.PersistentVolume](s), drivers: informers.For[*storagev1.CSIDriver](s),
		attachments: informers.For[*storagev1.VolumeAttachment](s), podsOn: informers.PodsByNode(s),
		created: map[string]*storagev1.VolumeAttachment{}, unwanted: map[string]time.Time{}, told: map[string]string{},
	}
	r.podsOf = informers.Index(r.pods, "claim", claimsOf)
	r.attachedTo = informers.Index(r.attachments, "node", func(a *storagev1.VolumeAttachment) []string { return []string{a.Spec.NodeName} })
	r.attachedOf = informers.Index(r.attachments, "volume", func(a *storagev1.VolumeAttachment) []string { return []string{volumeOf(a)} })
	r.volumesOf = informers.Index(r.volumes, "disk", func(v *corev1.PersistentVolume) []string { return disksOf(uniqueOf(v)) })
	r.nodesWith = informers.Index(r.nodes, "disk", func(n *corev1.Node) []string { return disksOf(append(attachedNames(n), n.Status.VolumesInUse...)...) })
	r.Loop = c.NewLoop("attachdetach", 0, r.reconcile, r.nodes, r.pods, r.claims, r.volumes, r.drivers, r.attachments)
	r.writeNode, r.writeAttachment = controller.NewWriter(c, r.Loop, r.nodes), controller.NewWriter(c, r.Loop, r.attachments)
	r.attachments.OnChange(func(old, new *storagev1.VolumeAttachment) {
		if new == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.unwanted, old.Name)
		}
	})
	r.wake()
	return r
}

// wake names what a change concerns.
func (r *reconciler) wake() {
	loop.WakeOn(r.Loop, r.nodes, loop.Self)
	loop.WakeOn(r.Loop, r.pods, func(p *corev1.Pod) []loop.Key { return keys(p.Spec.NodeName) })
	loop.WakeOn(r.Loop, r.claims, func(c *corev1.PersistentVolumeClaim) []loop.Key { return r.users(c.Namespace, c.Name) })
	loop.WakeOn(r.Loop, r.volumes, func(v *corev1.PersistentVolume) []loop.Key {
		if ref := v.Spec.ClaimRef; ref != nil {
			return r.users(ref.Namespace, ref.Name)
		}
		return nil
	})
	loop.WakeOn(r.Loop, r.attachments, func(a *storagev1.VolumeAttachment) []loop.Key {
		return append(keys(a.Spec.NodeName), r.waiting(a)...)
	})
	loop.WakeOn(r.Loop, r.drivers, func(*storagev1.CSIDriver) []loop.Key { return r.allNodes() })
}

func (r *reconciler) allNodes() (out []loop.Key) {
	for _, n := range r.nodes.List() {
		out = append(out, loop.KeyOf(n))
	}
	return out
}

func keys(node string) []loop.Key {
	if node == "" {
		return nil
	}
	return []loop.Key{{Name: node}}
}

// users returns the nodes of the pods that use a claim.
func (r *reconciler) users(namespace, claim string) (out []loop.Key) {
	for _, p := range r.podsOf(namespace + "/" + claim) {
		out = append(out, keys(p.Spec.NodeName)...)
	}
	return out
}

// claimsOf returns the claims that a pod uses, as namespace/name.
func claimsOf(p *corev1.Pod) (out []string) {
	for i := range p.Spec.Volumes {
		if name := volumebinding.ClaimName(p, &p.Spec.Volumes[i]); name != "" {
			out = append(out, p.Namespace+"/"+name)
		}
	}
	return out
}

// volumeOf returns the persistent volume of an attachment, "" if it is for an inline one.
func volumeOf(a *storagev1.VolumeAttachment) string {
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	v := r.look(key.Name)
	r.mu.Lock()
	p := decide(v)
	r.mu.Unlock()
	// The node's list goes first: what is to be detached must not be in it any more.
	if err := r.writeAttached(ctx, key, v.node, p.attached); err != nil {
		return loop.Done, err
	}
	r.report(v, &p)
	var errs []error
	for _, a := range p.detach {
		_, err := r.writeAttachment.Delete(ctx, key, a, controller.Unchanged(a))
		errs = append(errs, err)
	}
	for _, a := range p.confirm {
		_, err := r.writeAttachment.Patch(ctx, key, a, types.MergePatchType, map[string]any{"status": map[string]any{"attached": true}}, "status")
		errs = append(errs, err)
	}
	for _, w := range p.attach {
		errs = append(errs, r.attach(ctx, key, w))
	}
	result := loop.Done
	if p.again > 0 {
		result = loop.After(p.again)
	}
	return result, errors.Join(errs...)
}

// look collects what is known of a node.
func (r *reconciler) look(name string) *view {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &view{name: name, wanted: map[corev1.UniqueVolumeName]*volume{}, names: map[string]corev1.UniqueVolumeName{}, unwanted: r.unwanted, now: time.Now(), noForce: r.noForce}
	v.node, _ = r.nodes.Get("", name)
	for _, p := range r.podsOn(name) {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, pv := range r.attachable(p) {
			unique := uniqueOf(pv)
			if v.wanted[unique] == nil {
				v.wanted[unique] = &volume{pv: pv, others: r.elsewhere(unique, name)}
			}
			v.wanted[unique].add(pv, p)
		}
	}
	for _, a := range r.merged(r.attachedTo(name), func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName == name }) {
		unique, ours := r.uniqueName(a)
		if !ours {
			continue
		}
		v.attachments, v.names[a.Name] = append(v.attachments, a), unique
		if v.wanted[unique] != nil {
			delete(r.unwanted, a.Name)
		} else if r.unwanted[a.Name].IsZero() {
			r.unwanted[a.Name] = v.now
		}
	}
	return v
}

// merged adds the attachments that were created but are not in the informer yet.
func (r *reconciler) merged(shown []*storagev1.VolumeAttachment, match func(*storagev1.VolumeAttachment) bool) []*storagev1.VolumeAttachment {
	out := slices.Clone(shown)
	for name, a := range r.created {
		if _, ok := r.attachments.Get("", name); ok {
			delete(r.created, name)
		} else if match(a) {
			out = append(out, a)
		}
	}
	return out
}

// uniqueName returns the name of an attachment's volume in a node's status. ours is false
// for attachments that this controller would not make. It does not depend on the volume's
// existence if the node lists the volume.
func (r *reconciler) uniqueName(a *storagev1.VolumeAttachment) (name corev1.UniqueVolumeName, ours bool) {
	if pv, ok := r.volumes.Get("", volumeOf(a)); ok {
		if c := intree.Source(pv); c != nil {
			return uniqueOf(pv), a.Name == attachment.Name(c.Driver, c.VolumeHandle, a.Spec.NodeName)
		}
	}
	n, ok := r.nodes.Get("", a.Spec.NodeName)
	if !ok {
		return "", volumeOf(a) != "" && strings.HasPrefix(a.Name, "csi-")
	}
	for _, list := range [][]corev1.UniqueVolumeName{n.Status.VolumesInUse, attachedNames(n)} {
		for _, unique := range list {
			driver, handle, ok := attachment.Parse(unique)
			if ok && a.Name == attachment.Name(driver, handle, n.Name) {
				return unique, true
			}
		}
	}
	return "", volumeOf(a) != "" && strings.HasPrefix(a.Name, "csi-")
}

func attachedNames(n *corev1.Node) (out []corev1.UniqueVolumeName) {
	for _, v := range n.Status.VolumesAttached {
		out = append(out, v.Name)
	}
	return out
}

// attachable returns the volumes of a pod's claims that their driver has to attach.
func (r *reconciler) attachable(p *corev1.Pod) (out []*corev1.PersistentVolume) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		claim, ok := r.claims.Get(p.Namespace, volumebinding.ClaimName(p, v))
		if !ok || claim.Spec.VolumeName == "" || volumebinding.CheckOwner(p, v, claim) != nil {
			continue
		}
		pv, ok := r.volumes.Get("", claim.Spec.VolumeName)
		if !ok || !volumebinding.Reserved(pv, claim) {
			continue
		}
		if c := intree.Source(pv); c != nil && attachment.Required(r.driver(c.Driver)) {
			out = append(out, pv)
		}
	}
	return out
}

// driver returns the CSIDriver of a driver, nil if it has none.
func (r *reconciler) driver(name string) *storagev1.CSIDriver {
	if d := intree.Driver(name); d != nil {
		return d
	}
	d, _ := r.drivers.Get("", name)
	return d
}

// writeAttached writes the list of a node's status if it differs. It fails if the Node has
// changed: its kubelet may have begun to use a volume.
func (r *reconciler) writeAttached(ctx context.Context, key loop.Key, n *corev1.Node, want []corev1.AttachedVolume) error {
	if n == nil || slices.Equal(n.Status.VolumesAttached, want) {
		return nil
	}
	_, err := r.writeNode.Patch(ctx, key, n, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "status": map[string]any{"volumesAttached": want},
	}, "status")
	return err
}

// attach creates the attachment of a volume.
func (r *reconciler) attach(ctx context.Context, key loop.Key, w *volume) error {
	c := intree.Source(w.pv)
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachment.Name(c.Driver, c.VolumeHandle, key.Name)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: c.Driver, NodeName: key.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &w.pv.Name}},
	}
	got, err := r.writeAttachment.Create(ctx, key, a)
	if apierrors.IsAlreadyExists(err) { // the informer will show it
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach volume %s: %w", w.pv.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created[a.Name] = got
	return nil
}
