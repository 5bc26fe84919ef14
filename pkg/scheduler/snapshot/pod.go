package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pod is a pod with the values that the scheduler derives from it. It is immutable once it is on
// a node.
type Pod struct {
	*corev1.Pod
	Requests Resources
	NonZero  Resources // CPU and memory, with a default for containers without a request
	Ports    []Port    // host ports
	Terms    []*Term   // pod affinity and anti-affinity

	// Derive sets these for a pending pod: what depends on the cluster.
	Resolved []*Term         // Terms, with the namespaces that they select listed by name
	Matching []*Shared       // terms of other pods that select this one
	Siblings labels.Selector // of the pods of its Services and its controller; nil if it has none, or says itself how it is spread

	shared []*Shared // Terms; set while the pod is on a node or nominated
}

// Priority returns the pod's priority; 0 if it has none.
func (p *Pod) Priority() int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Has reports whether a pod that is on a node or nominated has the term.
func (p *Pod) Has(t *Shared) bool { return slices.Contains(p.shared, t) }

// Port is a host port.
type Port struct {
	Protocol corev1.Protocol
	IP       string // "" stands for all addresses
	Port     int32
}

// anyIP is the other notation for all addresses.
const anyIP = "0.0.0.0"

// Overlaps reports whether the two ports conflict on one host.
func (p Port) Overlaps(o Port) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol && (p.IP == o.IP || p.IP == "" || o.IP == "")
}

// NewPod derives the values of pod. Callers must not change the pod afterwards.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{Pod: pod, Ports: hostPorts(&pod.Spec), Terms: termsOf(pod)}
	p.Requests, p.NonZero = podRequests(pod)
	return p
}

func hostPorts(spec *corev1.PodSpec) []Port {
	var ports []Port
	add := func(c *corev1.Container) {
		for _, cp := range c.Ports {
			if cp.HostPort <= 0 {
				continue
			}
			p := Port{cp.Protocol, cp.HostIP, cp.HostPort}
			if p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
			if p.IP == anyIP {
				p.IP = ""
			}
			ports = append(ports, p)
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if Sidecar(&spec.InitContainers[i]) {
			add(&spec.InitContainers[i])
		}
	}
	return ports
}
