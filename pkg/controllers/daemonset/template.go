package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// generationLabel is the label of pods with the number of their template. It identifies the
// template of pods whose hash label is that of a lost revision.
const generationLabel = "pod-template-generation"

// template returns the template of new pods. hash is that of the current revision.
func template(ds *appsv1.DaemonSet, hash string) *corev1.PodTemplateSpec {
	t := ds.Spec.Template.DeepCopy()
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	if generation := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" {
		t.Labels[generationLabel] = generation
	}
	t.Spec.Tolerations = tolerationsOf(&t.Spec)
	return t
}

// onNode returns a copy of the pod that can only be scheduled to the node. It replaces the
// required node affinity, which the node matches.
func onNode(pod *corev1.Pod, node string) *corev1.Pod {
	pod = pod.DeepCopy()
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}
	return pod
}

// nodeOf returns the node that the pod is bound to or can only be scheduled to, "" if any
// node may get it.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		at := slices.IndexFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if at >= 0 {
			return term.MatchFields[at].Values[0]
		}
	}
	return ""
}
