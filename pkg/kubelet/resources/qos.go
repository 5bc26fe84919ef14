package resources

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
)

// QOS returns the pod's quality of service class.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	requests, limits := map[corev1.ResourceName]resource.Quantity{}, map[corev1.ResourceName]resource.Quantity{}
	guaranteed := true
	look := func(r *corev1.ResourceRequirements) {
		add(requests, r.Requests)
		if found := add(limits, r.Limits); found != 2 {
			guaranteed = false
		}
	}
	if r := pod.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
		look(r)
	} else {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				look(&list[i].Resources)
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	if guaranteed && len(requests) == len(limits) {
		for name, q := range requests {
			if l, ok := limits[name]; !ok || l.Cmp(q) != 0 {
				guaranteed = false
			}
		}
		if guaranteed {
			return corev1.PodQOSGuaranteed
		}
	}
	return corev1.PodQOSBurstable
}

// add adds CPU and memory to sum and returns how many of them are more than 0.
func add(sum map[corev1.ResourceName]resource.Quantity, list corev1.ResourceList) int {
	found := 0
	for name, q := range list {
		if (name != corev1.ResourceCPU && name != corev1.ResourceMemory) || q.Sign() <= 0 {
			continue
		}
		found++
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
	return found
}

// Requests returns the resources that the pod requests of a node: the sum of its
// containers or its largest init container, whichever is more, overridden by
// pod-level requests; plus its overhead.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return podresources.PodRequests(pod, podresources.PodResourcesOptions{})
}

// Limits is Requests for limits. It omits a resource if a container has no limit for
// it, unless the pod has one.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	out := podresources.PodLimits(pod, podresources.PodResourcesOptions{})
	for name := range out {
		if r := pod.Spec.Resources; r != nil {
			if _, ok := r.Limits[name]; ok {
				continue
			}
		}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if q, ok := list[i].Resources.Limits[name]; !ok || q.IsZero() {
					delete(out, name)
				}
			}
		}
	}
	return out
}

// StorageLimit returns the pod's limit of ephemeral-storage: the sum of its
// containers' limits or the largest of its init containers'. As upstream, a container
// without a limit adds nothing. 0: no limit.
func StorageLimit(pod *corev1.Pod) resource.Quantity {
	return podresources.PodLimits(pod, podresources.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
}
