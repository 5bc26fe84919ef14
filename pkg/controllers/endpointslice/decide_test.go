package endpointslice

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"podium/pkg/controllers/backends"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "service-uid", Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.9", Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func pod(i int, change ...func(*corev1.Pod)) *corev1.Pod {
	name := fmt.Sprintf("p%04d", i)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.%d.%d", i/250, i%250),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func somePods(from, to int) (out []*corev1.Pod) {
	for i := from; i < to; i++ {
		out = append(out, pod(i))
	}
	return out
}

func noZone(string) string { return "" }

func notReady(p *corev1.Pod) { p.Status.Conditions = nil }
func leaving(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{Time: now} }

// carryOut applies a plan and describes it: "+3" is a new slice of three, "3>5" a changed
// one, "-" a deleted one.
func carryOut(have []*discoveryv1.EndpointSlice, p backends.Plan) (after []*discoveryv1.EndpointSlice, what string) {
	var out []string
	size := map[string]int{}
	for _, es := range have {
		size[es.Name] = len(es.Endpoints)
	}
	after = slices.Clone(have)
	for _, es := range p.Create {
		out = append(out, fmt.Sprintf("+%d", len(es.Endpoints)))
		after = append(after, es)
	}
	for _, es := range p.Update {
		out = append(out, fmt.Sprintf("%d>%d", size[es.Name], len(es.Endpoints)))
		after[slices.IndexFunc(after, func(o *discoveryv1.EndpointSlice) bool { return o.Name == es.Name })] = es
	}
	for _, es := range p.Delete {
		out = append(out, "-")
		after = slices.DeleteFunc(after, func(o *discoveryv1.EndpointSlice) bool { return o.Name == es.Name })
	}
	return after, strings.Join(out, " ")
}

func TestChurn(t *testing.T) {
	tests := map[string]struct {
		reason string
		steps  [][]*corev1.Pod
		want   []string
	}{
		"Empty": {
			reason: "a service without pods has a slice that says so, and keeps it",
			steps:  [][]*corev1.Pod{nil, nil}, want: []string{"+0", ""},
		},
		"FirstPods": {
			reason: "the empty slice is the first to be filled, and the last to stay",
			steps:  [][]*corev1.Pod{nil, somePods(0, 2), nil}, want: []string{"+0", "0>2", "2>0"},
		},
		"OneMore": {
			reason: "one slice changes, the fullest that has room",
			steps:  [][]*corev1.Pod{somePods(0, 13), somePods(0, 14)}, want: []string{"+5 +5 +3", "3>4"},
		},
		"OneLess": {
			reason: "only the slice that had it changes; slices are not packed",
			steps:  [][]*corev1.Pod{somePods(0, 13), somePods(1, 13)}, want: []string{"+5 +5 +3", "5>4"},
		},
		"Replaced": {
			reason: "the new one goes where the old one was: the slice changes anyway",
			steps:  [][]*corev1.Pod{somePods(0, 13), append(somePods(1, 13), pod(99))}, want: []string{"+5 +5 +3", "5>5"},
		},
		"ManyMore": {
			reason: "what fits nowhere as a whole gets slices of its own",
			steps:  [][]*corev1.Pod{somePods(0, 3), somePods(0, 9)}, want: []string{"+3", "+5 3>4"},
		},
		"AllGone": {
			reason: "one empty slice is left of three",
			steps:  [][]*corev1.Pod{somePods(0, 13), nil}, want: []string{"+5 +5 +3", "5>0 - -"},
		},
		"NothingNew": {
			reason: "pods that change nothing about their endpoints cause no write",
			steps:  [][]*corev1.Pod{somePods(0, 3), {pod(0), pod(1), pod(2, func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} })}},
			want:   []string{"+3", ""},
		},
		"ReadinessChanges": {
			reason: "a pod that is not ready stays, and says so",
			steps:  [][]*corev1.Pod{somePods(0, 3), {pod(0), pod(1, notReady), pod(2)}}, want: []string{"+3", "3>3"},
		},
		"OtherPorts": {
			reason: "a pod whose named port has another number needs a slice of its own",
			steps:  [][]*corev1.Pod{append(somePods(0, 2), pod(2, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 }))},
			want:   []string{"+2 +1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var have []*discoveryv1.EndpointSlice
			for i, members := range tc.steps {
				p := decide(service(), desired(service(), members, noZone), have, 5)
				var got string
				if have, got = carryOut(have, p); got != tc.want[i] {
					t.Errorf("%s\nstep %d: got %q, want %q", tc.reason, i, got, tc.want[i])
				}
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	zone := func(string) string { return "z1" }
	tests := map[string]struct {
		reason string
		s      *corev1.Service
		p      *corev1.Pod
		want   string
	}{
		"Ready":       {"the normal case", service(), pod(1), "10.0.0.1 ready serving zone=z1 node=node 8080"},
		"NotReady":    {"it is listed, for those who want to know", service(), pod(1, notReady), "10.0.0.1 zone=z1 node=node 8080"},
		"Terminating": {"still serving, but no new connections", service(), pod(1, leaving), "10.0.0.1 serving terminating zone=z1 node=node 8080"},
		"Publish":     {"the service wants them all", service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }), pod(1, notReady), "10.0.0.1 ready zone=z1 node=node 8080"},
		"Ended":       {"it will never serve again", service(), pod(1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), ""},
		"NoAddress":   {"nowhere to go", service(), pod(1, func(p *corev1.Pod) { p.Status.PodIP = "" }), ""},
		"NoSuchPort":  {"listed without the port", service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("no") }), pod(1), "10.0.0.1 ready serving zone=z1 node=node"},
		"Hostname":    {"a name in the service's domain", service(), pod(1, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "h", "web" }), "10.0.0.1 ready serving host=h zone=z1 node=node 8080"},
		"HostOfOther": {"the name is in another domain", service(), pod(1, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "h", "db" }), "10.0.0.1 ready serving zone=z1 node=node 8080"},
		"WrongFamily": {"an IPv6 service does not list IPv4", service(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }), pod(1), ""},
		"PreferClose": {"traffic stays in the zone", service(func(s *corev1.Service) { s.Spec.TrafficDistribution = new("PreferClose") }), pod(1), "10.0.0.1 ready serving zone=z1 node=node for=z1 8080"},
		"PreferNode":  {"traffic stays on the node", service(func(s *corev1.Service) { s.Spec.TrafficDistribution = new("PreferSameNode") }), pod(1), "10.0.0.1 ready serving zone=z1 node=node for=z1,node 8080"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, g := range desired(tc.s, []*corev1.Pod{tc.p}, zone) {
				got += show(g)
			}
			if got != tc.want {
				t.Errorf("%s\n got %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

func show(g *group) string {
	e := g.endpoints[0]
	out := e.Addresses[0]
	for _, c := range []struct {
		on   *bool
		name string
	}{{e.Conditions.Ready, "ready"}, {e.Conditions.Serving, "serving"}, {e.Conditions.Terminating, "terminating"}} {
		if *c.on {
			out += " " + c.name
		}
	}
	if e.Hostname != nil {
		out += " host=" + *e.Hostname
	}
	out += " zone=" + ptr.Deref(e.Zone, "") + " node=" + ptr.Deref(e.NodeName, "")
	if e.Hints != nil {
		out += " for=" + e.Hints.ForZones[0].Name
		for _, n := range e.Hints.ForNodes {
			out += "," + n.Name
		}
	}
	for _, p := range g.ports {
		out += fmt.Sprintf(" %d", *p.Port)
	}
	return out
}

func TestSliceMetadata(t *testing.T) {
	headless := service(func(s *corev1.Service) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Labels = map[string]string{"team": "b"}
	})
	have, _ := carryOut(nil, decide(service(), desired(service(), somePods(0, 2), noZone), nil, 5))
	first := have[0]
	want := map[string]string{
		"team": "a", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
	}
	if fmt.Sprint(first.Labels) != fmt.Sprint(want) || !strings.HasPrefix(first.Name, "web-") ||
		first.Annotations[corev1.EndpointsLastChangeTriggerTime] != "2026-01-01T12:00:00Z" || first.OwnerReferences[0].UID != "service-uid" {
		t.Errorf("%+v", first.ObjectMeta)
	}
	again, _ := carryOut(nil, decide(service(), desired(service(), somePods(0, 2), noZone), nil, 5))
	if again[0].Name != first.Name {
		t.Errorf("a second attempt at the same slice has another name: %s, %s", first.Name, again[0].Name)
	}
	have, what := carryOut(have, decide(headless, desired(headless, somePods(0, 2), noZone), have, 5))
	if what != "2>2" || have[0].Labels["team"] != "b" || have[0].Labels[corev1.IsHeadlessService] != "" {
		t.Errorf("%s, labels %v: the service's labels are followed", what, have[0].Labels)
	}
}

// TestRandomChanges applies random changes to a service's pods: each pod is in exactly one
// slice, slices never exceed the limit, and a second decide changes nothing.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		alive := map[int]*corev1.Pod{}
		var have []*discoveryv1.EndpointSlice
		for range 40 {
			for range r.IntN(12) {
				i := r.IntN(60)
				switch {
				case alive[i] == nil:
					alive[i] = pod(i, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 8080 + int32(i%2) })
				case r.IntN(2) == 0:
					delete(alive, i)
				default:
					alive[i] = pod(i, notReady, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = alive[i].Spec.Containers[0].Ports })
				}
			}
			var members []*corev1.Pod
			for i := range 60 {
				if alive[i] != nil {
					members = append(members, alive[i])
				}
			}
			groups := func() []*group { return desired(service(), members, noZone) }
			have, _ = carryOut(have, decide(service(), groups(), have, 7))
			seen := map[string]bool{}
			for _, es := range have {
				if len(es.Endpoints) > 7 || len(es.Endpoints) == 0 && len(have) > 1 {
					t.Fatalf("seed %d: a slice of %d", seed, len(es.Endpoints))
				}
				for _, e := range es.Endpoints {
					if seen[e.TargetRef.Name] {
						t.Fatalf("seed %d: %s twice", seed, e.TargetRef.Name)
					}
					seen[e.TargetRef.Name] = true
				}
			}
			if len(seen) != len(members) {
				t.Fatalf("seed %d: %d of %d pods", seed, len(seen), len(members))
			}
			if _, what := carryOut(have, decide(service(), groups(), have, 7)); what != "" {
				t.Fatalf("seed %d: a second look wants %s", seed, what)
			}
		}
	}
}

func BenchmarkDecide1000(b *testing.B) {
	members := somePods(0, 1000)
	have, _ := carryOut(nil, decide(service(), desired(service(), members, noZone), nil, 100))
	members[500] = pod(500, notReady)
	b.ReportAllocs()
	for b.Loop() {
		p := decide(service(), desired(service(), members, noZone), have, 100)
		if len(p.Update) != 1 || len(p.Create)+len(p.Delete) != 0 {
			b.Fatal("one pod changed: one slice changes")
		}
	}
}

// TestSameEndpointComparesAllFields fails when the API's endpoint gets a field that sameEndpoint
// does not compare.
func TestSameEndpointComparesAllFields(t *testing.T) {
	for _, tc := range []struct {
		of   reflect.Type
		want int
	}{
		{reflect.TypeFor[discoveryv1.Endpoint](), 8},
		{reflect.TypeFor[discoveryv1.EndpointConditions](), 3},
		{reflect.TypeFor[discoveryv1.EndpointHints](), 2},
	} {
		if got := tc.of.NumField(); got != tc.want {
			t.Errorf("%v has %d fields, sameEndpoint knows %d", tc.of, got, tc.want)
		}
	}
}
