package endpointslicemirroring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controllers/backends"
)

func subset(port int32, ready, notReady []string) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "http", Port: port}}}
	for _, ip := range ready {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
	}
	for _, ip := range notReady {
		s.NotReadyAddresses = append(s.NotReadyAddresses, corev1.EndpointAddress{IP: ip})
	}
	return s
}

func endpointsOf(subsets ...corev1.EndpointSubset) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "ns", UID: "first", Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}"},
		},
		Subsets: subsets,
	}
}

func addresses(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
	}
	return out
}

// show formats a slice: its family, its ports, and its endpoints or their number.
func show(es *discoveryv1.EndpointSlice) string {
	out := string(es.AddressType)
	for _, p := range es.Ports {
		out += fmt.Sprintf(" %s/%d", *p.Protocol, *p.Port)
	}
	if len(es.Endpoints) > 5 {
		return fmt.Sprintf("%s: %d endpoints", out, len(es.Endpoints))
	}
	for _, e := range es.Endpoints {
		out += " " + e.Addresses[0]
		if !*e.Conditions.Ready {
			out += "(not ready)"
		}
	}
	return out
}

// carryOut applies a plan to the slices; what describes it.
func carryOut(have []*discoveryv1.EndpointSlice, p backends.Plan) (after []*discoveryv1.EndpointSlice, what []string) {
	after = slices.Clone(have)
	at := func(name string) int {
		return slices.IndexFunc(after, func(es *discoveryv1.EndpointSlice) bool { return es.Name == name })
	}
	for _, es := range p.Create {
		what = append(what, "+ "+show(es))
		es.Name = fmt.Sprintf("db-%d", len(after))
		after = append(after, es)
	}
	for _, es := range p.Update {
		what = append(what, "~ "+show(es))
		after[at(es.Name)] = es
	}
	for _, es := range p.Delete {
		what = append(what, "- "+show(es))
		after = slices.Delete(after, at(es.Name), at(es.Name)+1)
	}
	return after, what
}

func TestSlicesFollow(t *testing.T) {
	other := endpointsOf(subset(80, addresses(1, 2), nil))
	other.UID = "second"
	labelled := endpointsOf(subset(80, addresses(1, 2), nil))
	labelled.Labels = map[string]string{"team": "b"}
	for name, tc := range map[string]struct {
		reason string
		steps  []*corev1.Endpoints
		want   []string // of the last step
	}{
		"New":        {"a slice has a subset's addresses, and says which are ready", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 3), addresses(3, 4)))}, []string{"+ IPv4 TCP/80 10.0.0.1 10.0.0.2 10.0.0.3(not ready)"}},
		"Same":       {"what is there already is not written again", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 3), nil)), endpointsOf(subset(80, addresses(1, 3), nil))}, nil},
		"Changed":    {"the slice of these ports changes", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 3), nil)), endpointsOf(subset(80, addresses(2, 4), nil))}, []string{"~ IPv4 TCP/80 10.0.0.2 10.0.0.3"}},
		"Labels":     {"they are those of the Endpoints", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 2), nil)), labelled}, []string{"~ IPv4 TCP/80 10.0.0.1"}},
		"Ports":      {"a slice has one set of ports: the new one comes before the old one goes", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 2), nil)), endpointsOf(subset(81, addresses(1, 2), nil))}, []string{"+ IPv4 TCP/81 10.0.0.1", "- IPv4 TCP/80 10.0.0.1"}},
		"Families":   {"a slice has addresses of one family", []*corev1.Endpoints{endpointsOf(subset(80, []string{"10.0.0.1", "fd00::1"}, nil))}, []string{"+ IPv4 TCP/80 10.0.0.1", "+ IPv6 TCP/80 fd00::1"}},
		"Subsets":    {"subsets with the same ports share a slice, and an address counts once", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 2), nil), subset(80, addresses(2, 3), addresses(1, 2)))}, []string{"+ IPv4 TCP/80 10.0.0.1 10.0.0.2"}},
		"Many":       {"a slice holds a thousand", []*corev1.Endpoints{endpointsOf(subset(80, addresses(0, 900), nil), subset(80, addresses(900, 1100), nil))}, []string{"+ IPv4 TCP/80: 1000 endpoints", "+ IPv4 TCP/80: 100 endpoints"}},
		"Fewer":      {"the one that is not needed any more goes", []*corev1.Endpoints{endpointsOf(subset(80, addresses(0, 900), nil), subset(80, addresses(900, 1100), nil)), endpointsOf(subset(80, addresses(0, 900), nil))}, []string{"~ IPv4 TCP/80: 900 endpoints", "- IPv4 TCP/80: 100 endpoints"}},
		"Emptied":    {"nothing is left", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 2), nil)), endpointsOf()}, []string{"- IPv4 TCP/80 10.0.0.1"}},
		"MadeAnew":   {"slices of an object that had the name before belong to the garbage collector's next round", []*corev1.Endpoints{endpointsOf(subset(80, addresses(1, 2), nil)), other}, []string{"+ IPv4 TCP/80 10.0.0.1", "- IPv4 TCP/80 10.0.0.1"}},
		"NoAddress":  {"it is left out", []*corev1.Endpoints{endpointsOf(subset(80, []string{"nowhere", "10.0.0.1"}, nil))}, []string{"+ IPv4 TCP/80 10.0.0.1"}},
		"NoSubsets":  {"nothing to mirror", []*corev1.Endpoints{endpointsOf()}, nil},
		"OneTooMany": {"a subset's first thousand are mirrored", []*corev1.Endpoints{endpointsOf(subset(80, addresses(0, 1001), nil))}, []string{"+ IPv4 TCP/80: 1000 endpoints"}},
	} {
		t.Run(name, func(t *testing.T) {
			var have []*discoveryv1.EndpointSlice
			var what []string
			for _, e := range tc.steps {
				todo, _ := decide(e, have)
				have, what = carryOut(have, todo)
			}
			if d := cmp.Diff(tc.want, what); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestMirroredSliceContent(t *testing.T) {
	node := "n1"
	e := endpointsOf(corev1.EndpointSubset{
		Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1", Hostname: "first", NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "p"}}},
		Ports:     []corev1.EndpointPort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, AppProtocol: new("x")}},
	})
	todo, missing := decide(e, nil)
	if missing != (skipped{}) || len(todo.Create) != 1 {
		t.Fatalf("%+v, %+v", todo, missing)
	}
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "db-", Namespace: "ns", Annotations: map[string]string{"note": "x"},
			Labels: map[string]string{
				"team": "a", "kubernetes.io/service-name": "db", "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Endpoints", Name: "db", UID: "first", Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("dns"), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP), AppProtocol: new("x")}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, Hostname: new("first"), NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "p"},
		}},
	}
	if d := cmp.Diff(want, todo.Create[0]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestWhatIsLeftOutIsCounted(t *testing.T) {
	_, missing := decide(endpointsOf(subset(80, append(addresses(0, 990), "x", "y"), addresses(990, 1007))), nil)
	if missing != (skipped{invalid: 2, tooMany: 7}) {
		t.Errorf("got %+v", missing)
	}
}

func TestWanted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Service, *corev1.Endpoints)
		want   bool
	}{
		"ByHand":   {func(*corev1.Service, *corev1.Endpoints) {}, true},
		"Selector": {func(s *corev1.Service, _ *corev1.Endpoints) { s.Spec.Selector = map[string]string{"a": "b"} }, false},
		"Skipped": {func(_ *corev1.Service, e *corev1.Endpoints) {
			e.Labels["endpointslice.kubernetes.io/skip-mirror"] = "true"
		}, false},
		"Not": {func(_ *corev1.Service, e *corev1.Endpoints) {
			e.Labels["endpointslice.kubernetes.io/skip-mirror"] = "false"
		}, true},
		"Leader": {func(_ *corev1.Service, e *corev1.Endpoints) { e.Annotations[leader] = "" }, false},
		"Ending": {func(_ *corev1.Service, e *corev1.Endpoints) { e.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := &corev1.Service{}, endpointsOf()
			tc.change(s, e)
			if got := wanted(s, e); got != tc.want {
				t.Errorf("got %t\n%s", got, strings.TrimSpace(fmt.Sprint(e.Labels, e.Annotations)))
			}
		})
	}
}
