package snapshot

import (
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pod is a pod with all that the scheduler reads of it, worked out once.
type Pod struct {
	*corev1.Pod
	Requests Resources
	NonZero  Resources // CPU and memory, with a guess where nothing is asked for
	Ports    []Port    // of the host

	// Shape is equal for pods that every node suits equally.
	Shape string
}

// Port is a port of the host.
type Port struct {
	Protocol corev1.Protocol
	IP       string // "" is every address
	Port     int32
}

// anyIP is how a user may write every address.
const anyIP = "0.0.0.0"

// Overlaps holds when two pods cannot have these ports on one host.
func (p Port) Overlaps(o Port) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol && (p.IP == o.IP || p.IP == "" || o.IP == "")
}

// NewPod works out what pod asks for. The pod must not change afterwards.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{
		Pod:      pod,
		Requests: podResources(&pod.Spec, requests),
		NonZero:  podResources(&pod.Spec, nonZeroRequests),
		Ports:    hostPorts(&pod.Spec),
	}
	p.Shape = shape(p)
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
		if sidecar(&spec.InitContainers[i]) {
			add(&spec.InitContainers[i])
		}
	}
	return ports
}

// shape writes down, unmistakably, everything a plugin may look at.
func shape(p *Pod) string {
	b := make([]byte, 0, 128)
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	amounts := func(r Resources) {
		b = binary.AppendVarint(b, r.CPU)
		b = binary.AppendVarint(b, r.Memory)
		b = binary.AppendVarint(b, r.Ephemeral)
		b = binary.AppendUvarint(b, uint64(len(r.Extended)))
		for _, name := range r.names() {
			text(string(name))
			b = binary.AppendVarint(b, r.Extended[name])
		}
	}
	amounts(p.Requests)
	amounts(p.NonZero)
	b = binary.AppendUvarint(b, uint64(len(p.Ports)))
	for _, port := range p.Ports {
		text(string(port.Protocol))
		text(port.IP)
		b = binary.AppendVarint(b, int64(port.Port))
	}
	b = binary.AppendUvarint(b, uint64(len(p.Spec.NodeSelector)))
	for _, k := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		text(k)
		text(p.Spec.NodeSelector[k])
	}
	b = binary.AppendUvarint(b, uint64(len(p.Spec.Tolerations)))
	for _, t := range p.Spec.Tolerations {
		text(t.Key)
		text(string(t.Operator))
		text(t.Value)
		text(string(t.Effect))
	}
	text(p.Spec.NodeName)
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		text(a.NodeAffinity.String()) // it holds no map: equal values print alike
	}
	return string(b)
}
