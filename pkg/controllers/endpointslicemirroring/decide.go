package endpointslicemirroring

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controller/ownership"
	"podium/pkg/controllers/backends"
)

// ManagedBy is the managed-by label of this controller's slices.
const ManagedBy = "endpointslicemirroring-controller.k8s.io"

// leader marks Endpoints that are locks of an old leader election: they change every other
// second and have no addresses.
const leader = "control-plane.alpha.kubernetes.io/leader"

// capacity is the maximum number of addresses that are mirrored per subset, and of endpoints
// per slice.
const capacity = 1000

var kind = corev1.SchemeGroupVersion.WithKind("Endpoints")

// wanted reports whether to mirror a service's Endpoints. A service with a selector already
// has slices.
func wanted(s *corev1.Service, e *corev1.Endpoints) bool {
	_, elects := e.Annotations[leader]
	return s.Spec.Selector == nil && !elects && e.Labels[discoveryv1.LabelSkipMirror] != "true" && e.DeletionTimestamp == nil
}

// skipped counts the addresses that are not mirrored.
type skipped struct {
	invalid int // not parseable
	tooMany int // in one subset
}

// decide returns the changes after which the slices together hold the addresses of e.
func decide(e *corev1.Endpoints, have []*discoveryv1.EndpointSlice) (backends.Plan, skipped) {
	want, missing := desired(e)
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, es := range slices.SortedFunc(slices.Values(have), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) }) {
		if metav1.IsControlledBy(es, e) {
			byKey[keyOf(es)] = append(byKey[keyOf(es)], es)
		}
	}
	var p backends.Plan
	kept := map[string]bool{}
	for _, w := range want {
		same := byKey[keyOf(w)]
		if len(same) == 0 {
			p.Create = append(p.Create, w)
			continue
		}
		was := same[0]
		byKey[keyOf(w)] = same[1:]
		kept[was.Name] = true
		next := *was
		next.Labels, next.Annotations, next.Endpoints = w.Labels, w.Annotations, w.Endpoints
		if !equality.Semantic.DeepEqual(&next, was) {
			p.Update = append(p.Update, &next)
		}
	}
	for _, es := range have {
		if !kept[es.Name] {
			p.Delete = append(p.Delete, es)
		}
	}
	return p, missing
}

func keyOf(es *discoveryv1.EndpointSlice) string { return backends.GroupKey(es.AddressType, es.Ports) }

// desired returns the slices that e should have; slices of one key are adjacent.
func desired(e *corev1.Endpoints) (out []*discoveryv1.EndpointSlice, missing skipped) {
	last := map[string]*discoveryv1.EndpointSlice{} // the last slice of a key, which may have room
	seen := map[string]map[string]bool{}            // addresses by key
	for i := range e.Subsets {
		s := &e.Subsets[i]
		taken := 0
		for j, a := range slices.Concat(s.Addresses, s.NotReadyAddresses) {
			ip, err := netip.ParseAddr(a.IP)
			if err != nil {
				missing.invalid++
				continue
			}
			blank := newSlice(e, s, ip)
			k := keyOf(blank)
			if seen[k][a.IP] {
				continue // the ready ones come first
			}
			if taken == capacity {
				missing.tooMany++
				continue
			}
			taken++
			if seen[k] == nil {
				seen[k] = map[string]bool{}
			}
			seen[k][a.IP] = true
			if es := last[k]; es == nil || len(es.Endpoints) == capacity {
				last[k] = blank
				out = append(out, blank)
			}
			last[k].Endpoints = append(last[k].Endpoints, endpoint(a, j < len(s.Addresses)))
		}
	}
	return out, missing
}

func endpoint(a corev1.EndpointAddress, ready bool) discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{
		Addresses:  []string{a.IP},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		out.Hostname = &a.Hostname
	}
	return out
}

// newSlice returns a slice without endpoints for a subset's addresses of the family of ip.
func newSlice(e *corev1.Endpoints, s *corev1.EndpointSubset, ip netip.Addr) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: e.Name + "-", Namespace: e.Namespace, Labels: backends.SliceLabels(e.Labels, e.Name, ManagedBy), Annotations: maps.Clone(e.Annotations),
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(e, kind)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{},
	}
	delete(es.Annotations, corev1.LastAppliedConfigAnnotation) // the slice was not applied
	if ip.Is6() {
		es.AddressType = discoveryv1.AddressTypeIPv6
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		es.Ports = append(es.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &protocol, AppProtocol: p.AppProtocol})
	}
	return es
}
