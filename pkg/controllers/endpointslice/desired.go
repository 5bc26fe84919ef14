package endpointslice

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podium/pkg/conditions"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/pods"
	"podium/pkg/controllers/backends"
)

// ManagedBy is the managed-by label of this controller's slices.
const ManagedBy = "endpointslice-controller.k8s.io"

var kind = corev1.SchemeGroupVersion.WithKind("Service")

// endpoint is a desired endpoint with the time of its last change.
type endpoint struct {
	discoveryv1.Endpoint
	changed time.Time
}

// group is the endpoints of one address family with the same ports, which may share a slice.
type group struct {
	key       string
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints []endpoint // in the order of the pods
}

// desired groups the service's pods, in a stable order.
func desired(s *corev1.Service, members []*corev1.Pod, zone func(node string) string) []*group {
	var groups []*group
	for _, family := range backends.Families(s) {
		byNumbers := map[string]*group{}
		var numbers []byte
		for _, p := range members {
			ip := backends.Address(p, family)
			if ip == "" || !backends.Usable(p) {
				continue
			}
			numbers = appendNumbers(numbers[:0], s, p)
			g := byNumbers[string(numbers)]
			if g == nil {
				g = &group{family: discoveryv1.AddressType(family), ports: portsOf(s, p)}
				g.key = backends.GroupKey(g.family, g.ports)
				byNumbers[string(numbers)] = g
				groups = append(groups, g)
			}
			g.endpoints = append(g.endpoints, endpointOf(s, p, ip, zone))
		}
	}
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.key, b.key) })
	return groups
}

// appendNumbers appends the numbers of the service's ports in this pod. Pods with equal
// numbers belong to the same group.
func appendNumbers(b []byte, s *corev1.Service, p *corev1.Pod) []byte {
	for i := range s.Spec.Ports {
		n, ok := backends.Port(p, &s.Spec.Ports[i])
		if !ok {
			n = -1
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func portsOf(s *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for i := range s.Spec.Ports {
		sp := &s.Spec.Ports[i]
		if n, ok := backends.Port(p, sp); ok {
			out = append(out, discoveryv1.EndpointPort{Name: &sp.Name, Port: &n, Protocol: &sp.Protocol, AppProtocol: sp.AppProtocol})
		}
	}
	return out
}

func endpointOf(s *corev1.Service, p *corev1.Pod, ip string, zone func(node string) string) endpoint {
	serving := pods.Ready(p)
	terminating := p.DeletionTimestamp != nil
	ready := s.Spec.PublishNotReadyAddresses || serving && !terminating
	e := endpoint{Endpoint: discoveryv1.Endpoint{
		Addresses:  []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}}
	if c := conditions.Find(p.Status.Conditions, corev1.PodReady); c != nil {
		e.changed = c.LastTransitionTime.Time
	}
	if host := backends.Hostname(p, s); host != "" {
		e.Hostname = &host
	}
	if node := p.Spec.NodeName; node != "" {
		e.NodeName = &node
		if z := zone(node); z != "" {
			e.Zone = &z
		}
	}
	if ready {
		e.Hints = hints(s, e.Endpoint)
	}
	return e
}

// hints returns the zone and node hints of an endpoint if the service prefers close
// endpoints, otherwise nil.
func hints(s *corev1.Service, e discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	if s.Spec.TrafficDistribution == nil || e.Zone == nil && *s.Spec.TrafficDistribution != corev1.ServiceTrafficDistributionPreferSameNode {
		return nil
	}
	h := &discoveryv1.EndpointHints{}
	if e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	switch *s.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if e.NodeName == nil {
			return nil
		}
		h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		return h
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		return h
	}
	return nil
}

func labelsOf(s *corev1.Service) map[string]string {
	return backends.SliceLabels(backends.ServiceLabels(s), s.Name, ManagedBy)
}

func newSlice(s *corev1.Service, name string, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, GenerateName: s.Name + "-", Namespace: s.Namespace, Labels: labelsOf(s),
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(s, kind)},
		},
		AddressType: family, Ports: ports, Endpoints: []discoveryv1.Endpoint{},
	}
}

// sameEndpoint compares all fields, including those that endpointOf leaves empty.
func sameEndpoint(a, b *discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) &&
		ptr.Equal(a.Conditions.Ready, b.Conditions.Ready) && ptr.Equal(a.Conditions.Serving, b.Conditions.Serving) &&
		ptr.Equal(a.Conditions.Terminating, b.Conditions.Terminating) &&
		ptr.Equal(a.Hostname, b.Hostname) && ptr.Equal(a.TargetRef, b.TargetRef) && ptr.Equal(a.NodeName, b.NodeName) && ptr.Equal(a.Zone, b.Zone) &&
		maps.Equal(a.DeprecatedTopology, b.DeprecatedTopology) && sameHints(a.Hints, b.Hints)
}

func sameHints(a, b *discoveryv1.EndpointHints) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes)
}
