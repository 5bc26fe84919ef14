package attachdetach

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/attachment"
	"podium/pkg/conditions"
	"podium/pkg/intree"
)

// forceAfter is upstream's time after which a volume is detached from an unhealthy node
// whose kubelet may still use it.
const forceAfter = 6 * time.Minute

// volume is a volume that pods of the node need. Several persistent volumes may name it.
type volume struct {
	pv     *corev1.PersistentVolume      // the one that decides
	pods   []*corev1.Pod                 // of this node
	others []*storagev1.VolumeAttachment // of the same disk to other nodes
}

// add adds a pod that needs the volume by a persistent volume. One that excludes other
// nodes decides; of equals, the first by name.
func (w *volume) add(pv *corev1.PersistentVolume, pod *corev1.Pod) {
	w.pods = append(w.pods, pod)
	if e := exclusive(pv); e != exclusive(w.pv) && e || e == exclusive(w.pv) && pv.Name < w.pv.Name {
		w.pv = pv
	}
}

// view is what is known of one node.
type view struct {
	name        string
	node        *corev1.Node // nil: it does not exist
	wanted      map[corev1.UniqueVolumeName]*volume
	attachments []*storagev1.VolumeAttachment // to this node, of persistent volumes of CSI drivers
	names       map[string]corev1.UniqueVolumeName
	unwanted    map[string]time.Time // by attachment: since when no pod needs it
	now         time.Time
	noForce     bool // do not detach after forceAfter
}

// plan is what to do for a node.
type plan struct {
	attach   []*volume                     // create their attachments
	confirm  []*storagev1.VolumeAttachment // they are attached as soon as they exist
	blocked  []*volume                     // attached to another node, which excludes this one
	detach   []*storagev1.VolumeAttachment // delete them
	attached []corev1.AttachedVolume       // the list in the node's status
	again    time.Duration                 // when to look again; 0: when something changes
}

// decide says which volumes to attach and detach, and what is attached.
func decide(v *view) plan {
	var p plan
	have := map[corev1.UniqueVolumeName]bool{}
	for _, a := range v.attachments {
		unique := v.names[a.Name]
		have[unique] = true
		if v.wanted[unique] == nil && a.DeletionTimestamp == nil {
			wait, ok := v.detaches(a)
			if ok {
				p.detach = append(p.detach, a)
				continue
			}
			if wait > 0 && (p.again == 0 || wait < p.again) {
				p.again = wait
			}
		}
		if !a.Status.Attached && a.DeletionTimestamp == nil && intree.Driver(a.Spec.Attacher) != nil {
			p.confirm = append(p.confirm, a)
		}
		if a.Status.Attached && a.DeletionTimestamp == nil && unique != "" {
			p.attached = append(p.attached, corev1.AttachedVolume{Name: unique})
		}
	}
	for unique, w := range v.wanted {
		switch {
		case have[unique] || v.node == nil:
		case len(w.others) > 0 && exclusive(w.pv):
			p.blocked = append(p.blocked, w)
		default:
			p.attach = append(p.attach, w)
		}
	}
	byName := func(a, b *volume) int { return cmp.Compare(a.pv.Name, b.pv.Name) }
	slices.SortFunc(p.attach, byName)
	slices.SortFunc(p.blocked, byName)
	slices.SortFunc(p.attached, func(a, b corev1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// detaches reports whether a volume that no pod needs can be detached now, and otherwise
// when to ask again; 0: when the node changes.
func (v *view) detaches(a *storagev1.VolumeAttachment) (wait time.Duration, ok bool) {
	if v.node != nil {
		if !attachment.InUse(v.node, v.names[a.Name]) || outOfService(v.node) {
			return 0, true
		}
		if conditions.IsTrue(v.node.Status.Conditions, corev1.NodeReady) {
			return 0, false
		}
	}
	if v.noForce {
		return 0, false
	}
	// What a kubelet uses whose node is unhealthy or gone is unknown.
	wait = v.unwanted[a.Name].Add(forceAfter).Sub(v.now)
	return max(wait, 0), wait <= 0
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// exclusive reports whether a volume can be attached to one node only. As upstream, one
// without access modes is left to its driver.
func exclusive(pv *corev1.PersistentVolume) bool {
	modes := pv.Spec.AccessModes
	return len(modes) > 0 && !slices.Contains(modes, corev1.ReadWriteMany) && !slices.Contains(modes, corev1.ReadOnlyMany)
}
