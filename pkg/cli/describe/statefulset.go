package describe

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (p *page) statefulSet(set *appsv1.StatefulSet, pods []corev1.Pod) {
	p.head(&set.ObjectMeta)
	p.field(0, "CreationTimestamp", when(set.CreationTimestamp))
	p.field(0, "Selector", metav1.FormatLabelSelector(set.Spec.Selector))
	p.meta(&set.ObjectMeta)
	wanted := int32(1)
	if set.Spec.Replicas != nil {
		wanted = *set.Spec.Replicas
	}
	p.line(0, "Replicas:\t%d desired | %d total", wanted, set.Status.Replicas)
	p.field(0, "Update Strategy", string(set.Spec.UpdateStrategy.Type))
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		if r.Partition != nil {
			p.line(1, "Partition:\t%d", *r.Partition)
		}
		if r.MaxUnavailable != nil {
			p.line(1, "MaxUnavailable:\t%s", r.MaxUnavailable)
		}
	}
	p.podsOf(set, pods)
	p.template(&set.Spec.Template)
	p.claimTemplates(set.Spec.VolumeClaimTemplates)
}

func (p *page) claimTemplates(claims []corev1.PersistentVolumeClaim) {
	if len(claims) == 0 {
		p.line(0, "Volume Claims:\t<none>")
		return
	}
	p.line(0, "Volume Claims:")
	for i := range claims {
		c := &claims[i]
		p.line(1, "Name:\t%s", c.Name)
		class := ""
		if c.Spec.StorageClassName != nil {
			class = *c.Spec.StorageClassName
		}
		p.line(1, "StorageClass:\t%s", class)
		p.pairs(1, "Labels", c.Labels)
		p.annotations(1, c.Annotations)
		capacity := "<default>"
		if q, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
			capacity = q.String()
		}
		p.line(1, "Capacity:\t%s", capacity)
		p.line(1, "Access Modes:\t%v", c.Spec.AccessModes)
	}
}
