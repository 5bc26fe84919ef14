package endpointslice

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controllers/backends"
	"podium/pkg/controllers/ownership"
	"podium/pkg/controllers/pods"
)

// ManagedBy marks the slices of this controller.
const ManagedBy = "endpointslice-controller.k8s.io"

var kind = corev1.SchemeGroupVersion.WithKind("Service")

// endpoint is one that should be in some slice, with the time of the change
// that made it what it is.
type endpoint struct {
	discoveryv1.Endpoint
	changed time.Time
}

// group are the endpoints of one address family that have the same ports:
// those that may share a slice.
type group struct {
	key       string
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints []endpoint // in the order of the pods
}

// groupKey is equal for slices whose endpoints may be exchanged.
func groupKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%s/%s/%d/%s", deref(p.Name), deref(p.Protocol), deref(p.Port), deref(p.AppProtocol))
	}
	slices.Sort(texts)
	return string(family) + " " + strings.Join(texts, " ")
}

// desired sorts the service's pods into groups, in a stable order.
func desired(s *corev1.Service, members []*corev1.Pod, zone func(node string) string) []*group {
	var groups []*group
	for _, family := range backends.Families(s) {
		byNumbers := map[string]*group{}
		var numbers []byte
		for _, p := range members {
			ip := backends.Address(p, family)
			if ip == "" || !backends.Counts(p) {
				continue
			}
			numbers = appendNumbers(numbers[:0], s, p)
			g := byNumbers[string(numbers)]
			if g == nil {
				g = &group{family: discoveryv1.AddressType(family), ports: portsOf(s, p)}
				g.key = groupKey(g.family, g.ports)
				byNumbers[string(numbers)] = g
				groups = append(groups, g)
			}
			g.endpoints = append(g.endpoints, endpointOf(s, p, ip, zone))
		}
	}
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.key, b.key) })
	return groups
}

// appendNumbers writes the numbers that the service's ports have in this pod:
// pods for which they are equal are of one group.
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
	if c := pods.Condition(p, corev1.PodReady); c != nil {
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

// hints say for which zone (and node) an endpoint is meant, where the service
// asks for traffic to stay close.
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

// labelsOf are the labels of the service's slices.
func labelsOf(s *corev1.Service) map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	if backends.Headless(s) {
		out[corev1.IsHeadlessService] = ""
	}
	out[discoveryv1.LabelServiceName] = s.Name
	out[discoveryv1.LabelManagedBy] = ManagedBy
	return out
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

func deref[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}

// sameEndpoint compares what endpointOf sets, and what it leaves out.
func sameEndpoint(a, b *discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) &&
		same(a.Conditions.Ready, b.Conditions.Ready) && same(a.Conditions.Serving, b.Conditions.Serving) &&
		same(a.Conditions.Terminating, b.Conditions.Terminating) &&
		same(a.Hostname, b.Hostname) && same(a.TargetRef, b.TargetRef) && same(a.NodeName, b.NodeName) && same(a.Zone, b.Zone) &&
		maps.Equal(a.DeprecatedTopology, b.DeprecatedTopology) && sameHints(a.Hints, b.Hints)
}

func sameHints(a, b *discoveryv1.EndpointHints) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes)
}

// same compares two values where there are two.
func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
