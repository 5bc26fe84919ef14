package snapshot

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources are amounts: millicores, and bytes.
type Resources struct {
	CPU       int64
	Memory    int64
	Ephemeral int64
	Extended  map[corev1.ResourceName]int64 // hugepages, devices, ...; nil when there are none
}

// Zero holds when nothing is asked for.
func (r Resources) Zero() bool {
	return r.CPU == 0 && r.Memory == 0 && r.Ephemeral == 0 && len(r.Extended) == 0
}

// What a container that asks for nothing is taken to use when nodes are
// compared: else they would all go to the same one.
const (
	nonZeroCPU    = 100
	nonZeroMemory = 200 << 20
)

// resourcesOf reads a resource list.
func resourcesOf(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		r.set(name, q)
	}
	return r
}

func (r *Resources) set(name corev1.ResourceName, q resource.Quantity) {
	switch name {
	case corev1.ResourceCPU:
		r.CPU = q.MilliValue()
	case corev1.ResourceMemory:
		r.Memory = q.Value()
	case corev1.ResourceEphemeralStorage:
		r.Ephemeral = q.Value()
	case corev1.ResourcePods, corev1.ResourceStorage:
		// counted otherwise, or of no concern to a node
	default:
		if v := q.Value(); v != 0 {
			if r.Extended == nil {
				r.Extended = map[corev1.ResourceName]int64{}
			}
			r.Extended[name] = v
		}
	}
}

func (r *Resources) add(o Resources) {
	r.CPU += o.CPU
	r.Memory += o.Memory
	r.Ephemeral += o.Ephemeral
	for name, v := range o.Extended {
		if r.Extended == nil {
			r.Extended = map[corev1.ResourceName]int64{}
		}
		r.Extended[name] += v
	}
}

func (r *Resources) atLeast(o Resources) {
	r.CPU = max(r.CPU, o.CPU)
	r.Memory = max(r.Memory, o.Memory)
	r.Ephemeral = max(r.Ephemeral, o.Ephemeral)
	for name, v := range o.Extended {
		if v > r.Extended[name] {
			if r.Extended == nil {
				r.Extended = map[corev1.ResourceName]int64{}
			}
			r.Extended[name] = v
		}
	}
}

func (r Resources) clone() Resources {
	r.Extended = maps.Clone(r.Extended)
	return r
}

// names lists the extended resources in order.
func (r Resources) names() []corev1.ResourceName {
	return slices.Sorted(maps.Keys(r.Extended))
}

// podResources is what a pod needs of its node, as upstream counts it: what
// runs together is added up; init containers run one after another, beside the
// sidecars started before them; the larger of both counts, and the overhead.
func podResources(spec *corev1.PodSpec, of func(*corev1.Container) Resources) Resources {
	var together, sidecars, initial Resources
	for i := range spec.Containers {
		together.add(of(&spec.Containers[i]))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		need := of(c)
		if sidecar(c) {
			together.add(need)
			sidecars.add(need)
			need = sidecars.clone()
		} else {
			need = need.clone()
			need.add(sidecars)
		}
		initial.atLeast(need)
	}
	together.atLeast(initial)
	if spec.Resources != nil { // a request of the whole pod takes the place of its containers'
		whole := resourcesOf(spec.Resources.Requests)
		for name := range spec.Resources.Requests {
			switch name {
			case corev1.ResourceCPU:
				together.CPU = whole.CPU
			case corev1.ResourceMemory:
				together.Memory = whole.Memory
			}
		}
	}
	together.add(resourcesOf(spec.Overhead))
	return together
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func requests(c *corev1.Container) Resources { return resourcesOf(c.Resources.Requests) }

func nonZeroRequests(c *corev1.Container) Resources {
	r := resourcesOf(c.Resources.Requests)
	if _, given := c.Resources.Requests[corev1.ResourceCPU]; !given {
		r.CPU = nonZeroCPU
	}
	if _, given := c.Resources.Requests[corev1.ResourceMemory]; !given {
		r.Memory = nonZeroMemory
	}
	return Resources{CPU: r.CPU, Memory: r.Memory}
}
