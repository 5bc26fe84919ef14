package endpointslicemirroring

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controllers/ownership"
)

// ManagedBy marks the slices of this controller.
const ManagedBy = "endpointslicemirroring-controller.k8s.io"

// leader marks objects in which replicas once elected their leader: they
// change every other second and have no addresses.
const leader = "control-plane.alpha.kubernetes.io/leader"

// capacity is how many addresses of a subset are mirrored, and how many a
// slice may hold.
const capacity = 1000

var kind = corev1.SchemeGroupVersion.WithKind("Endpoints")

// wanted says whether a service's Endpoints are to be mirrored: where it has a
// selector, slices are made of its pods.
func wanted(s *corev1.Service, e *corev1.Endpoints) bool {
	_, elects := e.Annotations[leader]
	return s.Spec.Selector == nil && !elects && e.Labels[discoveryv1.LabelSkipMirror] != "true" && e.DeletionTimestamp == nil
}

// left is what was not mirrored.
type left struct {
	invalid int // they are no addresses
	tooMany int // for one subset
}

// plan is what has to be written, in this order: no endpoint that stays is
// ever missing.
type plan struct {
	Create, Update, Delete []*discoveryv1.EndpointSlice
}

// decide says how the slices must change so that, together, they hold what e
// does. Slices are told apart by what cannot change within one: the family of
// the addresses, and the ports.
func decide(e *corev1.Endpoints, have []*discoveryv1.EndpointSlice) (plan, left) {
	want, missing := desired(e)
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, es := range slices.SortedFunc(slices.Values(have), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) }) {
		if metav1.IsControlledBy(es, e) {
			byKey[key(es)] = append(byKey[key(es)], es)
		}
	}
	var p plan
	kept := map[string]bool{}
	for _, w := range want {
		same := byKey[key(w)]
		if len(same) == 0 {
			p.Create = append(p.Create, w)
			continue
		}
		was := same[0]
		byKey[key(w)] = same[1:]
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

// key is equal for slices whose endpoints may be exchanged.
func key(es *discoveryv1.EndpointSlice) string {
	var ports []string
	for _, p := range es.Ports {
		ports = append(ports, fmt.Sprintf("%s/%s/%d/%s", deref(p.Name), deref(p.Protocol), deref(p.Port), deref(p.AppProtocol)))
	}
	slices.Sort(ports)
	return string(es.AddressType) + " " + strings.Join(ports, " ")
}

// desired are the slices that e should have, those of a key one after the other.
func desired(e *corev1.Endpoints) (out []*discoveryv1.EndpointSlice, missing left) {
	last := map[string]*discoveryv1.EndpointSlice{} // the one of a key that may have room
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
			k := key(blank)
			if seen[k][a.IP] {
				continue // ready ones come first, and count
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

// newSlice is a slice without endpoints for a subset's addresses of the family of ip.
func newSlice(e *corev1.Endpoints, s *corev1.EndpointSubset, ip netip.Addr) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: e.Name + "-", Namespace: e.Namespace, Labels: labelsOf(e), Annotations: maps.Clone(e.Annotations),
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(e, kind)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{},
	}
	delete(es.Annotations, corev1.LastAppliedConfigAnnotation) // it is not this object that was applied
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

func labelsOf(e *corev1.Endpoints) map[string]string {
	out := maps.Clone(e.Labels)
	if out == nil {
		out = map[string]string{}
	}
	out[discoveryv1.LabelServiceName] = e.Name
	out[discoveryv1.LabelManagedBy] = ManagedBy
	return out
}

func deref[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}
