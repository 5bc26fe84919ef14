package why

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/volumebinding"
)

const defaultClass = "storageclass.kubernetes.io/is-default-class"

// pendingClaim explains claims without a volume.
func pendingClaim(f *Facts, c *corev1.PersistentVolumeClaim) []Finding {
	if c.DeletionTimestamp != nil {
		return nil
	}
	switch c.Status.Phase {
	case corev1.ClaimLost:
		return []Finding{found(root, "the volume %q of the claim %s no longer exists: its data is lost", c.Spec.VolumeName, c.Name).by("status.phase: Lost").
			fix("podium delete pvc %s%s, then create it again and restore the data", c.Name, in(c.Namespace))}
	case corev1.ClaimBound:
		return resizing(c)
	}
	event := f.said(f.event("PersistentVolumeClaim", c.Name, "ProvisioningFailed", "FailedBinding", "VolumeMismatch", "ExternalProvisioning", "WaitForFirstConsumer", "WaitForPodScheduled"))
	if e := f.event("PersistentVolumeClaim", c.Name, "VolumeMismatch"); e != nil && c.Spec.VolumeName != "" {
		return []Finding{found(root, "the claim %s cannot get the volume that it asks for: %s", c.Name, oneLine(e.Message)).by(f.said(e)).fix("correct spec.volumeName, the size or the access modes in a new claim")}
	}
	if c.Spec.VolumeName != "" {
		return []Finding{namedVolume(f, c).by(event)}
	}
	name := volumebinding.ClassOf(c)
	class := one[storagev1.StorageClass](f, "StorageClass", "", name)
	switch {
	case name != "" && f.missing("storageclasses.storage.k8s.io", "", name):
		return []Finding{found(root, "the StorageClass %q of the claim %s does not exist", name, c.Name).by(event).fix("podium get storageclasses; create the class, or name one that exists in a new claim")}
	case name == "":
		return []Finding{classless(f, c).by(event)}
	case class == nil:
		return nil
	case volumebinding.Delayed(class) && (event == "" || strings.Contains(event, "WaitForFirstConsumer")) && !used(f, c):
		return []Finding{found(likely, "the claim %s waits for a pod that uses it: its StorageClass %q binds volumes when a pod is scheduled", c.Name, name).by("volumeBindingMode: WaitForFirstConsumer", event).
			fix("create a pod that uses the claim")}
	case class.Provisioner == volumebinding.NoProvisioner:
		return []Finding{found(root-1, "no free PersistentVolume of the class %q fits the claim %s (%s), and the class provisions none", name, c.Name, size(c)).by(event).
			fix("create a PersistentVolume with storageClassName %s: podium get pv", name)}
	case strings.Contains(event, "ProvisioningFailed"):
		return []Finding{found(root, "the provisioner %s cannot make a volume for the claim %s", class.Provisioner, c.Name).by(event).fix("correct the parameters of the StorageClass %s", name)}
	case volumebinding.Delayed(class) && c.Annotations[volumebinding.SelectedNode] == "":
		return []Finding{found(effect, "the claim %s waits until its pod is scheduled", c.Name).by(event)}
	}
	return []Finding{found(likely, "the provisioner %s has made no volume for the claim %s: it may not be running", class.Provisioner, c.Name).by(event).
		fix("podium get csidrivers; podium get pods -A: is the provisioner there?")}
}

func size(c *corev1.PersistentVolumeClaim) string {
	q := c.Spec.Resources.Requests[corev1.ResourceStorage]
	return fmt.Sprintf("%s, %v", q.String(), c.Spec.AccessModes)
}

// classless explains a claim without a StorageClass.
func classless(f *Facts, c *corev1.PersistentVolumeClaim) Finding {
	if c.Spec.StorageClassName != nil {
		return found(root, "no PersistentVolume without a class fits the claim %s (%s), whose storageClassName is empty", c.Name, size(c)).fix("create such a PersistentVolume, or name a StorageClass in a new claim")
	}
	for _, class := range each[storagev1.StorageClass](f, "StorageClass") {
		if class.Annotations[defaultClass] == "true" {
			return found(hint, "the claim %s is about to get the default StorageClass %q", c.Name, class.Name)
		}
	}
	return found(root, "the claim %s names no StorageClass, the cluster has no default one, and no PersistentVolume fits (%s)", c.Name, size(c)).
		fix("podium annotate storageclass CLASS %s=true, or create a PersistentVolume", defaultClass)
}

// namedVolume explains a claim that asks for one volume.
func namedVolume(f *Facts, c *corev1.PersistentVolumeClaim) Finding {
	v := one[corev1.PersistentVolume](f, "PersistentVolume", "", c.Spec.VolumeName)
	switch {
	case v == nil && f.missing("persistentvolumes", "", c.Spec.VolumeName):
		return found(root, "the PersistentVolume %q that the claim %s asks for does not exist", c.Spec.VolumeName, c.Name).fix("create the volume, or leave out spec.volumeName in a new claim")
	case v != nil && v.Spec.ClaimRef != nil && (v.Spec.ClaimRef.Name != c.Name || v.Spec.ClaimRef.Namespace != c.Namespace):
		return found(root, "the PersistentVolume %q that the claim %s asks for belongs to the claim %s/%s", v.Name, c.Name, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name).fix("name another volume in a new claim")
	}
	return found(effect, "the claim %s waits for the volume %q", c.Name, c.Spec.VolumeName)
}

// used reports whether a pod uses the claim.
func used(f *Facts, c *corev1.PersistentVolumeClaim) bool { return len(users(f, c)) > 0 }

func users(f *Facts, c *corev1.PersistentVolumeClaim) (out []string) {
	for _, p := range each[corev1.Pod](f, "Pod") {
		if p.Namespace != c.Namespace || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name || v.Ephemeral != nil && p.Name+"-"+v.Name == c.Name {
				out = append(out, "pod/"+p.Name)
			}
		}
	}
	return out
}

func resizing(c *corev1.PersistentVolumeClaim) (out []Finding) {
	for _, cond := range c.Status.Conditions {
		if cond.Status == corev1.ConditionTrue {
			out = append(out, found(likely, "the claim %s is being resized: %s", c.Name, cond.Type).by(fmt.Sprintf("condition %s=True: %s", cond.Type, cond.Message)))
		}
	}
	return out
}

// brokenVolume explains volumes that no claim can get.
func brokenVolume(f *Facts, v *corev1.PersistentVolume) []Finding {
	shown := "status.phase: " + string(v.Status.Phase)
	ref := v.Spec.ClaimRef
	switch {
	case v.Status.Phase == corev1.VolumeFailed:
		return []Finding{found(root, "the volume could not be reclaimed: %s", oneLine(v.Status.Message)).by(shown, f.said(f.event("PersistentVolume", v.Name, "VolumeFailedDelete", "VolumeFailedRecycle"))).
			fix("remove the data by hand, then: podium delete pv %s", v.Name)}
	case v.Status.Phase == corev1.VolumeReleased && ref != nil:
		return []Finding{found(root, "the volume still belongs to the deleted claim %s/%s: with reclaim policy %s no other claim gets it", ref.Namespace, ref.Name, v.Spec.PersistentVolumeReclaimPolicy).by(shown).
			fix(`podium patch pv %s --type=merge -p '{"spec":{"claimRef":null}}' (the next claim sees the old data)`, v.Name)}
	case v.Status.Phase == corev1.VolumeAvailable && ref != nil && f.missing("persistentvolumeclaims", ref.Namespace, ref.Name):
		return []Finding{found(likely, "the volume is reserved for the claim %s/%s, which does not exist", ref.Namespace, ref.Name).by("spec.claimRef").fix("create the claim, or remove spec.claimRef")}
	}
	return nil
}
