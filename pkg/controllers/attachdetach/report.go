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
	seen := map[string]bool{}
	tell := func(w *volume, eventType, reason, message string) {
		key := v.name + "/" + w.pv.Name
		seen[key] = true
		if r.told[key] == message {
			return
		}
		r.told[key] = message
		if r.Events == nil {
			return
		}
		for _, pod := range w.pods {
			r.Events.Event(pod, eventType, reason, message)
		}
	}
	for _, w := range p.blocked {
		tell(w, corev1.EventTypeWarning, "FailedAttachVolume", r.blockedBy(w))
	}
	for _, a := range v.attachments {
		w := v.wanted[v.names[a.Name]]
		switch {
		case w == nil:
		case a.Status.Attached:
			if !attachment.Attached(&corev1.Node{Status: corev1.NodeStatus{VolumesAttached: p.attached}}, v.names[a.Name]) {
				continue
			}
			tell(w, corev1.EventTypeNormal, "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", w.pv.Name))
		case a.Status.AttachError != nil:
			tell(w, corev1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", w.pv.Name, a.Status.AttachError.Message))
		}
	}
	for key := range r.told {
		if strings.HasPrefix(key, v.name+"/") && !seen[key] {
			delete(r.told, key)
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
