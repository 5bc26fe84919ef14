package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
	"podium/pkg/controller/pods"
	"podium/pkg/controllers/backends"
)

const (
	managedBy = "endpoints.kubernetes.io/managed-by"
	manager   = "endpoint-controller"

	// capacity is the maximum number of addresses in an object. If there are more, the
	// object has the annotation truncated.
	capacity  = 1000
	truncated = "truncated"
)

// decide returns the Endpoints object that the Service should have. change is false if have,
// which may be nil, is already correct.
func decide(s *corev1.Service, members []*corev1.Pod, have *corev1.Endpoints) (want *corev1.Endpoints, change bool) {
	if have == nil {
		want = &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
	} else {
		next := *have // maps and subsets are replaced, never changed in place
		want = &next
	}
	var cut bool
	want.Subsets, cut = truncate(subsets(s, members))
	want.Labels = backends.With(backends.ServiceLabels(s), map[string]string{managedBy: manager})
	want.Annotations = backends.With(want.Annotations, nil)
	delete(want.Annotations, corev1.EndpointsOverCapacity)
	if cut {
		want.Annotations[corev1.EndpointsOverCapacity] = truncated
	}
	if have != nil && equality.Semantic.DeepEqual(want.Subsets, have.Subsets) && maps.Equal(want.Labels, have.Labels) &&
		want.Annotations[corev1.EndpointsOverCapacity] == have.Annotations[corev1.EndpointsOverCapacity] {
		return have, false
	}
	delete(want.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if t := lastChange(members); !t.IsZero() {
		want.Annotations[corev1.EndpointsLastChangeTriggerTime] = t.UTC().Format(time.RFC3339Nano)
	}
	return want, true
}

// subsets groups the members by their ports, in an order that depends on nothing else.
func subsets(s *corev1.Service, members []*corev1.Pod) []corev1.EndpointSubset {
	byPorts := map[string]*corev1.EndpointSubset{}
	family := backends.Families(s)[0]
	for _, p := range members {
		ip := backends.Address(p, family)
		if ip == "" || !backends.Usable(p) || (p.DeletionTimestamp != nil && !s.Spec.PublishNotReadyAddresses) {
			continue
		}
		ports := portsOf(s, p)
		if len(ports) == 0 && !(len(s.Spec.Ports) == 0 && s.Spec.ClusterIP == corev1.ClusterIPNone) {
			continue // no port to reach
		}
		key := portsKey(ports)
		subset := byPorts[key]
		if subset == nil {
			subset = &corev1.EndpointSubset{Ports: ports}
			byPorts[key] = subset
		}
		if s.Spec.PublishNotReadyAddresses || pods.Ready(p) {
			subset.Addresses = append(subset.Addresses, addressOf(s, p, ip))
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, addressOf(s, p, ip))
		}
	}
	var out []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		subset := *byPorts[key]
		slices.SortFunc(subset.Addresses, compareAddresses)
		slices.SortFunc(subset.NotReadyAddresses, compareAddresses)
		out = append(out, subset)
	}
	return out
}

func portsOf(s *corev1.Service, p *corev1.Pod) []corev1.EndpointPort {
	var out []corev1.EndpointPort
	for i := range s.Spec.Ports {
		sp := &s.Spec.Ports[i]
		if n, ok := backends.Port(p, sp); ok {
			out = append(out, corev1.EndpointPort{Name: sp.Name, Port: n, Protocol: sp.Protocol, AppProtocol: sp.AppProtocol})
		}
	}
	slices.SortFunc(out, func(a, b corev1.EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return out
}

func portsKey(ports []corev1.EndpointPort) string {
	var b strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&b, "%s/%s/%d ", p.Name, p.Protocol, p.Port)
	}
	return b.String()
}

func addressOf(s *corev1.Service, p *corev1.Pod, ip string) corev1.EndpointAddress {
	a := corev1.EndpointAddress{
		IP: ip, Hostname: backends.Hostname(p, s),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	if p.Spec.NodeName != "" {
		a.NodeName = &p.Spec.NodeName
	}
	return a
}

func compareAddresses(a, b corev1.EndpointAddress) int {
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.TargetRef.UID, b.TargetRef.UID))
}

// truncate limits the addresses to the capacity and drops ready ones last.
func truncate(all []corev1.EndpointSubset) (out []corev1.EndpointSubset, cut bool) {
	left := capacity
	take := func(from []corev1.EndpointAddress) []corev1.EndpointAddress {
		n := min(left, len(from))
		left -= n
		cut = cut || n < len(from)
		return from[:n:n]
	}
	for i := range all {
		all[i].Addresses = take(all[i].Addresses)
	}
	for i := range all {
		all[i].NotReadyAddresses = take(all[i].NotReadyAddresses)
	}
	for _, s := range all {
		if len(s.Addresses)+len(s.NotReadyAddresses) > 0 {
			out = append(out, s)
		}
	}
	return out, cut
}

// lastChange returns when a pod's readiness last changed.
func lastChange(members []*corev1.Pod) (last time.Time) {
	for _, p := range members {
		if c := conditions.Find(p.Status.Conditions, corev1.PodReady); c != nil && c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	return last
}
