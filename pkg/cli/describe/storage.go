package describe

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/defaultclass"
)

// accessModes returns the short names of access modes, in kubectl's order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, known := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, known.mode) {
			out = append(out, known.short)
		}
	}
	return strings.Join(out, ",")
}

// class returns the storage class of a claim or volume: the annotation counts before
// the field, as for the controllers.
func class(annotations map[string]string, field string) string {
	if c, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return c
	}
	return field
}

func (p *page) volume(v *corev1.PersistentVolume) {
	p.field(0, "Name", v.Name)
	p.labels(&v.ObjectMeta)
	p.line(0, "Finalizers:\t%v", v.Finalizers)
	p.line(0, "StorageClass:\t%s", class(v.Annotations, v.Spec.StorageClassName))
	p.phase(&v.ObjectMeta, string(v.Status.Phase))
	claim := ""
	if c := v.Spec.ClaimRef; c != nil {
		claim = c.Namespace + "/" + c.Name
	}
	p.line(0, "Claim:\t%s", claim)
	p.line(0, "Reclaim Policy:\t%s", v.Spec.PersistentVolumeReclaimPolicy)
	p.line(0, "Access Modes:\t%s", accessModes(v.Spec.AccessModes))
	if v.Spec.VolumeMode != nil {
		p.line(0, "VolumeMode:\t%s", *v.Spec.VolumeMode)
	}
	capacity := v.Spec.Capacity[corev1.ResourceStorage]
	p.line(0, "Capacity:\t%s", capacity.String())
	p.nodeAffinity(v.Spec.NodeAffinity)
	p.line(0, "Message:\t%s", v.Status.Message)
	p.line(0, "Source:")
	p.volumeSource(&v.Spec.PersistentVolumeSource)
}

func (p *page) nodeAffinity(a *corev1.VolumeNodeAffinity) {
	if a == nil || a.Required == nil {
		p.line(0, "Node Affinity:\t<none>")
		return
	}
	p.line(0, "Node Affinity:\t")
	if len(a.Required.NodeSelectorTerms) == 0 {
		p.line(1, "Required Terms:\t<none>")
		return
	}
	p.line(1, "Required Terms:\t")
	for i, term := range a.Required.NodeSelectorTerms {
		p.list(2, fmt.Sprintf("Term %d", i), texts(term.MatchExpressions, func(r *corev1.NodeSelectorRequirement) string {
			return expression(r.Key, strings.ToLower(string(r.Operator)), r.Values)
		}))
	}
}

func expression(key, operator string, values []string) string {
	if len(values) == 0 {
		return key + " " + operator
	}
	return fmt.Sprintf("%s %s [%s]", key, operator, strings.Join(values, ", "))
}

// volumeSource writes where a volume's data is. Types that need a driver of their own
// are shown by all their fields.
func (p *page) volumeSource(s *corev1.PersistentVolumeSource) {
	switch {
	case s.HostPath != nil:
		kind := "<none>"
		if s.HostPath.Type != nil {
			kind = string(*s.HostPath.Type)
		}
		p.line(2, "Type:\tHostPath (bare host directory volume)")
		p.line(2, "Path:\t%s", s.HostPath.Path)
		p.line(2, "HostPathType:\t%s", kind)
	case s.Local != nil:
		p.line(2, "Type:\tLocalVolume (a persistent volume backed by local storage on a node)")
		p.line(2, "Path:\t%s", s.Local.Path)
	case s.NFS != nil:
		p.line(2, "Type:\tNFS (an NFS mount that lasts the lifetime of a pod)")
		p.line(2, "Server:\t%s", s.NFS.Server)
		p.line(2, "Path:\t%s", s.NFS.Path)
		p.line(2, "ReadOnly:\t%t", s.NFS.ReadOnly)
	case s.ISCSI != nil:
		p.target(s.ISCSI)
	case s.CSI != nil:
		p.line(2, "Type:\tCSI (a Container Storage Interface (CSI) volume source)")
		p.line(2, "Driver:\t%s", s.CSI.Driver)
		p.line(2, "FSType:\t%s", s.CSI.FSType)
		p.line(2, "VolumeHandle:\t%s", s.CSI.VolumeHandle)
		p.line(2, "ReadOnly:\t%t", s.CSI.ReadOnly)
		p.pairs(2, "VolumeAttributes", s.CSI.VolumeAttributes)
	default:
		p.fieldsOf(2, s)
	}
}

// target writes an iSCSI volume.
func (p *page) target(s *corev1.ISCSIPersistentVolumeSource) {
	initiator, secret := "<none>", "<nil>"
	if s.InitiatorName != nil {
		initiator = *s.InitiatorName
	}
	if s.SecretRef != nil {
		secret = s.SecretRef.Name
	}
	p.line(2, "Type:\tISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)")
	p.line(2, "TargetPortal:\t%s", s.TargetPortal)
	p.line(2, "IQN:\t%s", s.IQN)
	p.line(2, "Lun:\t%d", s.Lun)
	p.line(2, "ISCSIInterface\t%s", s.ISCSIInterface)
	p.line(2, "FSType:\t%s", s.FSType)
	p.line(2, "ReadOnly:\t%t", s.ReadOnly)
	p.line(2, "Portals:\t%v", s.Portals)
	p.line(2, "DiscoveryCHAPAuth:\t%t", s.DiscoveryCHAPAuth)
	p.line(2, "SessionCHAPAuth:\t%t", s.SessionCHAPAuth)
	p.line(2, "SecretRef:\t%s", secret)
	p.line(2, "InitiatorName:\t%s", initiator)
}

func (p *page) claim(c *corev1.PersistentVolumeClaim, pods []corev1.Pod) {
	p.head(&c.ObjectMeta)
	p.line(0, "StorageClass:\t%s", class(c.Annotations, deref(c.Spec.StorageClassName)))
	p.phase(&c.ObjectMeta, string(c.Status.Phase))
	p.line(0, "Volume:\t%s", c.Spec.VolumeName)
	p.labels(&c.ObjectMeta)
	p.line(0, "Finalizers:\t%v", c.Finalizers)
	capacity, modes := "", ""
	if c.Spec.VolumeName != "" {
		q := c.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = q.String(), accessModes(c.Status.AccessModes)
	}
	p.line(0, "Capacity:\t%s", capacity)
	p.line(0, "Access Modes:\t%s", modes)
	if c.Spec.VolumeMode != nil {
		p.line(0, "VolumeMode:\t%s", *c.Spec.VolumeMode)
	}
	if s := c.Spec.DataSource; s != nil {
		p.line(0, "DataSource:")
		p.field(1, "APIGroup", deref(s.APIGroup))
		p.line(1, "Kind:\t%s", s.Kind)
		p.line(1, "Name:\t%s", s.Name)
	}
	p.list(0, "Used By", usersOf(c.Name, pods))
	if len(c.Status.Conditions) > 0 {
		p.line(0, "Conditions:")
		p.line(1, "Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage")
		p.line(1, "----\t------\t-----------------\t------------------\t------\t-------")
		for _, n := range c.Status.Conditions {
			p.line(1, "%s \t%s \t%s \t%s \t%s \t%s", n.Type, n.Status, rfc1123(n.LastProbeTime), rfc1123(n.LastTransitionTime), n.Reason, n.Message)
		}
	}
}

// usersOf returns the names of the pods that mount a claim, sorted. The claim of a
// generic ephemeral volume has the name of its pod and volume.
func usersOf(claim string, pods []corev1.Pod) []string {
	var out []string
	for i := range pods {
		pod := &pods[i]
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim || v.Ephemeral != nil && pod.Name+"-"+v.Name == claim
		}) {
			out = append(out, pod.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (p *page) storageClass(c *storagev1.StorageClass) {
	isDefault := "No"
	if defaultclass.Marked(c, defaultclass.Storage()) {
		isDefault = "Yes"
	}
	p.field(0, "Name", c.Name)
	p.line(0, "IsDefaultClass:\t%s", isDefault)
	p.line(0, "Annotations:\t%s", labels.FormatLabels(c.Annotations))
	p.line(0, "Provisioner:\t%s", c.Provisioner)
	p.line(0, "Parameters:\t%s", labels.FormatLabels(c.Parameters))
	expansion := "<unset>"
	if c.AllowVolumeExpansion != nil {
		expansion = title(*c.AllowVolumeExpansion)
	}
	p.line(0, "AllowVolumeExpansion:\t%s", expansion)
	if len(c.MountOptions) == 0 {
		p.line(0, "MountOptions:\t<none>")
	} else {
		p.line(0, "MountOptions:")
		for _, o := range c.MountOptions {
			p.line(1, "%s", o)
		}
	}
	if c.ReclaimPolicy != nil {
		p.line(0, "ReclaimPolicy:\t%s", *c.ReclaimPolicy)
	}
	if c.VolumeBindingMode != nil {
		p.line(0, "VolumeBindingMode:\t%s", *c.VolumeBindingMode)
	}
	if c.AllowedTopologies != nil {
		p.line(0, "AllowedTopologies:\t")
		for i, term := range c.AllowedTopologies {
			p.list(1, fmt.Sprintf("Term %d", i), texts(term.MatchLabelExpressions, func(r *corev1.TopologySelectorLabelRequirement) string {
				return expression(r.Key, "in", r.Values)
			}))
		}
	}
}

func (p *page) attributesClass(c *storagev1.VolumeAttributesClass) {
	p.field(0, "Name", c.Name)
	p.line(0, "Annotations:\t%s", labels.FormatLabels(c.Annotations))
	p.line(0, "DriverName:\t%s", c.DriverName)
	p.line(0, "Parameters:\t%s", labels.FormatLabels(c.Parameters))
}

func (p *page) csiNode(n *storagev1.CSINode) {
	p.field(0, "Name", n.Name)
	p.labels(&n.ObjectMeta)
	p.line(0, "CreationTimestamp:\t%s", rfc1123(n.CreationTimestamp))
	p.line(0, "Spec:")
	if n.Spec.Drivers == nil {
		return
	}
	p.line(1, "Drivers:")
	for _, d := range n.Spec.Drivers {
		p.line(2, "%s:", d.Name)
		p.line(3, "Node ID:\t%s", d.NodeID)
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			p.line(3, "Allocatables:")
			p.line(4, "Count:\t%d", *d.Allocatable.Count)
		}
		if d.TopologyKeys != nil {
			p.line(3, "Topology Keys:\t%s", d.TopologyKeys)
		}
	}
}
