package resources

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOS is the pod's quality of service class.
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

// add sums CPU and memory, and counts those that are more than zero.
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

// Requests is what the pod needs of a node: its containers together, or its
// largest init container, or what it says as a pod; and its overhead.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return total(pod, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
}

// Limits is the like for limits. A resource is left out if a container has no limit of it.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	out := total(pod, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
	for name := range out {
		if r := pod.Spec.Resources; r != nil {
			if _, said := r.Limits[name]; said {
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

// StorageLimit is what the pod may take of the node's disk: its containers'
// limits of ephemeral-storage together, or the largest of its init containers'.
// A container without a limit adds nothing, as upstream has it. 0: no limit.
func StorageLimit(pod *corev1.Pod) resource.Quantity {
	all := total(pod, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
	return all[corev1.ResourceEphemeralStorage]
}

func total(pod *corev1.Pod, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		for name, q := range of(&pod.Spec.Containers[i].Resources) {
			sum := out[name]
			sum.Add(q)
			out[name] = sum
		}
	}
	for i := range pod.Spec.InitContainers {
		for name, q := range of(&pod.Spec.InitContainers[i].Resources) {
			if have, ok := out[name]; !ok || q.Cmp(have) > 0 {
				out[name] = q.DeepCopy()
			}
		}
	}
	if pod.Spec.Resources != nil {
		for name, q := range of(pod.Spec.Resources) {
			out[name] = q.DeepCopy()
		}
	}
	for name, q := range pod.Spec.Overhead {
		sum, has := out[name]
		if !has && len(pod.Spec.Containers) == 0 {
			continue
		}
		sum.Add(q)
		out[name] = sum
	}
	return out
}
