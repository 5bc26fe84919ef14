package backends

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// PodsBySelector returns a lookup of a namespace's pods that have all labels of a
// selector, which must not be empty.
func PodsBySelector(s *informers.Set) func(namespace string, selector map[string]string) []*corev1.Pod {
	byLabel := informers.Index(informers.For[*corev1.Pod](s), "label", func(p *corev1.Pod) []string { return pairs(p.Namespace, p.Labels) })
	return func(namespace string, selector map[string]string) []*corev1.Pod {
		var fewest []*corev1.Pod
		for i, pair := range pairs(namespace, selector) {
			found := byLabel(pair)
			if i == 0 || len(found) < len(fewest) {
				fewest = found
			}
		}
		if len(selector) == 1 {
			return fewest
		}
		return slices.DeleteFunc(fewest, func(p *corev1.Pod) bool { return !matches(selector, p.Labels) })
	}
}

// ServicesByPod returns a lookup of the Services that select a pod.
func ServicesByPod(s *informers.Set) func(*corev1.Pod) []*corev1.Service {
	byFirst := informers.Index(informers.For[*corev1.Service](s), "selector", func(s *corev1.Service) []string {
		return pairs(s.Namespace, s.Spec.Selector)[:min(1, len(s.Spec.Selector))]
	})
	return func(p *corev1.Pod) (found []*corev1.Service) {
		for _, pair := range pairs(p.Namespace, p.Labels) {
			for _, s := range byFirst(pair) {
				if matches(s.Spec.Selector, p.Labels) {
					found = append(found, s)
				}
			}
		}
		return found
	}
}

// WakeServices enqueues the Services that select a pod, before or after a change that
// affects an endpoint.
func WakeServices(l *loop.Loop, pods *informer.Informer[*corev1.Pod], services func(*corev1.Pod) []*corev1.Service) {
	pods.OnChange(func(old, new *corev1.Pod) {
		if old != nil && new != nil && same(old, new) {
			return
		}
		for _, p := range []*corev1.Pod{old, new} {
			if p == nil {
				continue
			}
			for _, s := range services(p) {
				l.Wake(loop.KeyOf(s))
			}
		}
	})
}

// pairs returns labels as sorted index values.
func pairs(namespace string, labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for k, v := range labels {
		out = append(out, namespace+"/"+k+"="+v)
	}
	slices.Sort(out)
	return out
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
