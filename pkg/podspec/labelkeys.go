package podspec

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MergeLabelKeys adds what matchLabelKeys and mismatchLabelKeys say about a new pod to the label
// selectors beside them. Labels that the pod lacks say nothing.
func MergeLabelKeys(pod *corev1.Pod) {
	for _, t := range podTerms(pod.Spec.Affinity) {
		merge(t.LabelSelector, metav1.LabelSelectorOpIn, t.MatchLabelKeys, pod.Labels)
		merge(t.LabelSelector, metav1.LabelSelectorOpNotIn, t.MismatchLabelKeys, pod.Labels)
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, metav1.LabelSelectorOpIn, c.MatchLabelKeys, pod.Labels)
	}
}

func merge(into *metav1.LabelSelector, op metav1.LabelSelectorOperator, keys []string, labels map[string]string) {
	if into == nil {
		return // validation refuses keys without a selector
	}
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			into.MatchExpressions = append(into.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
		}
	}
}

// podTerms returns all pod affinity terms.
func podTerms(a *corev1.Affinity) []*corev1.PodAffinityTerm {
	if a == nil {
		return nil
	}
	var out []*corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			out = append(out, &required[i])
		}
		for i := range preferred {
			out = append(out, &preferred[i].PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return out
}
