package attachdetach

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/attachment"
)

// report records events about what the pods of a node wait for, each once.
func (r *reconciler) report(v *view, p *plan) {
	n := &news{reconciler: r, node: v.name, seen: map[string]bool{}}
	for _, w := range p.attach {
		n.waits(w)
	}
	for _, w := range p.blocked {
		n.failed(w, r.blockedBy(w))
	}
	for _, a := range v.attachments {
		w := v.wanted[v.names[a.Name]]
		switch {
		case w == nil:
		case a.Status.Attached:
			if attachment.Attached(&corev1.Node{Status: corev1.NodeStatus{VolumesAttached: p.attached}}, v.names[a.Name]) {
				n.succeeded(w)
			}
		case a.Status.AttachError != nil:
			n.failed(w, fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", w.pv.Name, a.Status.AttachError.Message))
		default:
			n.waits(w)
		}
	}
	n.forgetOthers()
}

// news are the events about the volumes of one node. The reconciler's told has the last one of
// each volume that the node's pods need, "" if they wait for it and nothing is told yet.
type news struct {
	*reconciler
	node string
	seen map[string]bool
}

func (n *news) waits(w *volume) {
	key := n.key(w)
	if _, ok := n.told[key]; !ok {
		n.told[key] = ""
	}
}

func (n *news) failed(w *volume, message string) {
	n.tell(w, corev1.EventTypeWarning, "FailedAttachVolume", message)
}

// succeeded tells that a volume is attached, unless it was when this process saw it first: the
// one before it told so.
func (n *news) succeeded(w *volume) {
	message := fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", w.pv.Name)
	key := n.key(w)
	if _, waited := n.told[key]; !waited {
		n.told[key] = message
	}
	n.tell(w, corev1.EventTypeNormal, "SuccessfulAttachVolume", message)
}

func (n *news) tell(w *volume, eventType, reason, message string) {
	key := n.key(w)
	if n.told[key] == message {
		return
	}
	n.told[key] = message
	if n.Events == nil {
		return
	}
	for _, pod := range w.pods {
		n.Events.Event(pod, eventType, reason, message)
	}
}

func (n *news) key(w *volume) string {
	key := n.node + "/" + w.pv.Name
	n.seen[key] = true
	return key
}

// forgetOthers forgets the volumes of the node that no pod needs any more.
func (n *news) forgetOthers() {
	for key := range n.told {
		if strings.HasPrefix(key, n.node+"/") && !n.seen[key] {
			delete(n.told, key)
		}
	}
}

// blockedBy says, in upstream's words, which pods keep a volume on another node.
func (r *reconciler) blockedBy(w *volume) string {
	var here []string
	elsewhere := 0
	for _, p := range r.usersOn(w.pv, w.others) {
		if p.Namespace == w.pods[0].Namespace {
			here = append(here, p.Name)
		} else {
			elsewhere++
		}
	}
	text := fmt.Sprintf("Multi-Attach error for volume %q ", w.pv.Name)
	slices.Sort(here)
	switch {
	case len(here) > 0 && elsewhere > 0:
		return text + fmt.Sprintf("Volume is already used by pod(s) %s and %d pod(s) in different namespaces", strings.Join(here, ", "), elsewhere)
	case len(here) > 0:
		return text + "Volume is already used by pod(s) " + strings.Join(here, ", ")
	case elsewhere > 0:
		return text + fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", elsewhere)
	}
	return text + "Volume is already exclusively attached to one node and can't be attached to another"
}

// usersOn returns the pods that use a volume's disk on the nodes that it is attached to.
func (r *reconciler) usersOn(pv *corev1.PersistentVolume, on []*storagev1.VolumeAttachment) (out []*corev1.Pod) {
	for _, v := range r.volumesOf(diskOf(uniqueOf(pv))) {
		if v.Spec.ClaimRef != nil {
			out = append(out, r.podsOf(v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name)...)
		}
	}
	return slices.DeleteFunc(out, func(p *corev1.Pod) bool {
		return !slices.ContainsFunc(on, func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName == p.Spec.NodeName })
	})
}
