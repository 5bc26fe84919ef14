package horizontalpodautoscaler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// requests returns what the pods request of a resource, in thousandths: all their
// containers or, unless container is "", one. Every container must request it.
func requests(pods []*corev1.Pod, name corev1.ResourceName, container string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, p := range pods {
		if container == "" && resourcehelper.IsPodLevelRequestsSet(p) {
			q := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[name]
			if q.IsZero() {
				return nil, fmt.Errorf("missing pod-level request for %s in Pod %s", name, p.Name)
			}
			out[p.Name] = q.MilliValue()
			continue
		}
		for c := range lasting(p) {
			if container != "" && container != c.Name {
				continue
			}
			q, ok := c.Resources.Requests[name]
			if !ok {
				return nil, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, p.Name)
			}
			out[p.Name] += q.MilliValue()
		}
	}
	return out, nil
}

// lasting yields the containers that run as long as the pod, sidecars included.
func lasting(p *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i]) {
				return
			}
		}
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
	}
}
