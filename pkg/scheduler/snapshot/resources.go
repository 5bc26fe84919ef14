package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Resources are amounts: CPU in millicores, memory and ephemeral storage in bytes.
type Resources struct {
	CPU       int64
	Memory    int64
	Ephemeral int64
	Extended  map[corev1.ResourceName]int64 // huge pages, devices, ...; nil if there are none
}

// resourcesOf converts a resource list. It ignores the number of pods, which is not requested,
// and storage, which nodes do not provide.
func resourcesOf(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.CPU = q.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.Ephemeral = q.Value()
		case corev1.ResourcePods, corev1.ResourceStorage:
		default:
			if v := q.Value(); v != 0 {
				if r.Extended == nil {
					r.Extended = map[corev1.ResourceName]int64{}
				}
				r.Extended[name] = v
			}
		}
	}
	return r
}

// Assumed requests of a container without a request when nodes are compared: otherwise all such
// pods would go to the same node.
const (
	nonZeroCPU    = 100 // millicores
	nonZeroMemory = 200 << 20
)

// podRequests returns what a pod requests from its node, and its CPU and memory
// with the defaults for containers that do not request any. A pod that is being
// resized, and only that one has container statuses here, requests the larger of what
// it has and what it asks for.
func podRequests(pod *corev1.Pod) (requests, nonZero Resources) {
	resized := len(pod.Status.ContainerStatuses) > 0
	if spec := &pod.Spec; !resized && len(spec.Containers) == 1 && len(spec.InitContainers) == 0 && spec.Resources == nil && spec.Overhead == nil {
		return containerRequests(spec.Containers[0].Resources.Requests) // most pods: without the maps that follow
	}
	requests = resourcesOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: resized}))
	nonZero = requests
	if slices.ContainsFunc(pod.Spec.Containers, requestsMissing) || slices.ContainsFunc(pod.Spec.InitContainers, requestsMissing) {
		nonZero = resourcesOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
			UseStatusResources: resized,
			NonMissingContainerRequests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(nonZeroCPU, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(nonZeroMemory, resource.DecimalSI),
			},
		}))
	}
	return requests, Resources{CPU: nonZero.CPU, Memory: nonZero.Memory}
}

// containerRequests is podRequests for a pod of a single container.
func containerRequests(list corev1.ResourceList) (requests, nonZero Resources) {
	requests = resourcesOf(list)
	nonZero = Resources{CPU: requests.CPU, Memory: requests.Memory}
	if _, ok := list[corev1.ResourceCPU]; !ok {
		nonZero.CPU = nonZeroCPU
	}
	if _, ok := list[corev1.ResourceMemory]; !ok {
		nonZero.Memory = nonZeroMemory
	}
	return requests, nonZero
}

func requestsMissing(c corev1.Container) bool {
	_, cpu := c.Resources.Requests[corev1.ResourceCPU]
	_, memory := c.Resources.Requests[corev1.ResourceMemory]
	return !cpu || !memory
}

// Sidecar reports whether an init container keeps running while others start.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
