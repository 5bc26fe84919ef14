package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

const (
	addresses = "/registry/ipaddresses.networking.k8s.io/"
	nodePorts = "/registry/servicenodeports/"
)

var somePorts = registry.PortRange{First: 30000, Last: 30009}

func service(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if change != nil {
		change(&svc.Spec)
	}
	return svc
}

// write runs the rules of a Service write in the order of the server, up to the
// store.
func (r *rig) write(ctx context.Context, svc, old *corev1.Service) (undo func(context.Context), err error) {
	k := r.kinds["services"]
	var before scheme.Object
	if old != nil {
		before = old
	}
	k.Default(svc)
	if err := k.Prepare(ctx, nil, svc, before); err != nil {
		return nil, err
	}
	if errs := k.Validate(svc, before); len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupVersionKind.GroupKind(), svc.Name, errs)
	}
	return k.Allocate(ctx, svc, before, false)
}

func TestServiceAllocation(t *testing.T) {
	ctx := t.Context()
	r := newRig(t, "10.0.0.0/29", somePorts) // six addresses
	svc := service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	if _, err := r.write(ctx, svc, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.keys(t, addresses); !slices.Equal(got, svc.Spec.ClusterIPs) {
		t.Errorf("claimed %v, the Service has %v", got, svc.Spec.ClusterIPs)
	}
	if got := r.keys(t, nodePorts); !slices.Equal(got, []string{fmt.Sprint(svc.Spec.Ports[0].NodePort)}) {
		t.Errorf("claimed %v, the Service has %v", got, svc.Spec.Ports)
	}
	if diff := cmp.Diff([]corev1.IPFamily{corev1.IPv4Protocol}, svc.Spec.IPFamilies); diff != "" {
		t.Error(diff)
	}

	// The same address and port for another Service: refused, and nothing taken.
	other := service("b", func(s *corev1.ServiceSpec) {
		s.Type, s.ClusterIP = corev1.ServiceTypeNodePort, svc.Spec.ClusterIP
	})
	_, err := r.write(ctx, other, nil)
	wantInvalid(t, err, fmt.Sprintf(`spec.clusterIPs: Invalid value: ["%s"]: failed to allocate IP %s: provided IP is already allocated`, svc.Spec.ClusterIP, svc.Spec.ClusterIP))
	other = service("b", func(s *corev1.ServiceSpec) {
		s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, svc.Spec.Ports[0].NodePort
	})
	_, err = r.write(ctx, other, nil)
	wantInvalid(t, err, fmt.Sprintf("spec.ports[0].nodePort: Invalid value: %d: provided port is already allocated", svc.Spec.Ports[0].NodePort))
	if got := r.keys(t, addresses); len(got) != 1 {
		t.Errorf("a refused Service left its address behind: %v", got)
	}

	// Outside the ranges.
	_, err = r.write(ctx, service("b", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.0.7" }), nil)
	wantInvalid(t, err, `spec.clusterIPs: Invalid value: ["10.0.0.7"]: failed to allocate IP 10.0.0.7: the provided network does not match the current range`)
	_, err = r.write(ctx, service("b", func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, 80 }), nil)
	wantInvalid(t, err, "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30009")

	// To ExternalName: everything is given back. And again to NodePort.
	named := service("a", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		s.ClusterIP, s.ClusterIPs, s.IPFamilies, s.IPFamilyPolicy = svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy
		s.Ports, s.ExternalTrafficPolicy = slices.Clone(svc.Spec.Ports), svc.Spec.ExternalTrafficPolicy
	})
	if _, err := r.write(ctx, named, svc); err != nil {
		t.Fatal(err)
	}
	// The same by a client that clears the addresses itself.
	cleared := named.DeepCopy()
	cleared.Spec.ClusterIP, cleared.Spec.ClusterIPs = "", nil
	if _, err := r.write(ctx, cleared, svc); err != nil {
		t.Error(err)
	}
	r.kinds["services"].Release(ctx, named, svc)
	if named.Spec.ClusterIP != "" || named.Spec.Ports[0].NodePort != 0 || named.Spec.IPFamilyPolicy != nil {
		t.Errorf("an ExternalName keeps %+v", named.Spec)
	}
	if got := append(r.keys(t, addresses), r.keys(t, nodePorts)...); len(got) != 0 {
		t.Errorf("still claimed: %v", got)
	}
	back := service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	if _, err := r.write(ctx, back, named); err != nil {
		t.Fatal(err)
	}
	if back.Spec.ClusterIP == "" || back.Spec.Ports[0].NodePort == 0 {
		t.Errorf("nothing allocated: %+v", back.Spec)
	}
}

func wantInvalid(t *testing.T, err error, text string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v\nwant %s", err, text)
	}
}

// A client that replaces a Service without its allocated values keeps them.
func TestServiceReplacedByItsManifest(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	manifest := func() *corev1.Service {
		return service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	}
	first, second := manifest(), manifest()
	if _, err := r.write(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.write(t.Context(), second, first); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Spec, second.Spec); diff != "" {
		t.Error(diff)
	}
}

func TestServiceAddressIsForLife(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	first := service("a", nil)
	if _, err := r.write(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	_, err := r.write(t.Context(), service("a", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.0.200" }), first)
	wantInvalid(t, err, `spec.clusterIPs[0]: Invalid value: ["10.0.0.200"]: may not change once set`)
}

// TCP and UDP of one port get one number, if they can.
func TestNodePortSharedByProtocols(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	svc := service("dns", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeLoadBalancer
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Ports = []corev1.ServicePort{{Name: "u", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "t", Port: 53}, {Name: "x", Port: 54}}
	})
	if _, err := r.write(t.Context(), svc, nil); err != nil {
		t.Fatal(err)
	}
	p := svc.Spec.Ports
	if p[0].NodePort != p[1].NodePort || p[0].NodePort == p[2].NodePort || svc.Spec.HealthCheckNodePort == 0 {
		t.Errorf("%+v, health %d", p, svc.Spec.HealthCheckNodePort)
	}
	if got := r.keys(t, nodePorts); len(got) != 3 {
		t.Errorf("claimed %v, want the two ports and the health check's", got)
	}
	r.kinds["services"].Release(t.Context(), nil, svc)
	if got := append(r.keys(t, addresses), r.keys(t, nodePorts)...); len(got) != 0 {
		t.Errorf("a deleted Service keeps %v", got)
	}
}

func TestServiceDryRunTakesNothing(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	svc := service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	k := r.kinds["services"]
	k.Default(svc)
	if _, err := k.Allocate(t.Context(), svc, nil, true); err != nil {
		t.Fatal(err)
	}
	if svc.Spec.ClusterIP == "" || svc.Spec.Ports[0].NodePort == 0 {
		t.Errorf("nothing chosen: %+v", svc.Spec)
	}
	if got := append(r.keys(t, addresses), r.keys(t, nodePorts)...); len(got) != 0 {
		t.Errorf("taken: %v", got)
	}
}

// Concurrent servers allocate each address and port to one Service, and find the
// last free one.
func TestServiceAllocationIsRaceFree(t *testing.T) {
	r := newRig(t, "10.0.0.0/27", registry.PortRange{First: 30000, Last: 30029}) // 30 of each
	const asked = 40
	var mu sync.Mutex
	var group sync.WaitGroup
	ips, ports, full := map[string]bool{}, map[int32]bool{}, 0
	for i := range asked {
		group.Go(func() {
			svc := service(fmt.Sprintf("s%d", i), func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
			_, err := r.write(t.Context(), svc, nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if !strings.Contains(err.Error(), "range is full") {
					t.Error(err)
				}
				full++
				return
			}
			if ips[svc.Spec.ClusterIP] || ports[svc.Spec.Ports[0].NodePort] {
				t.Errorf("twice: %s %d", svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort)
			}
			ips[svc.Spec.ClusterIP], ports[svc.Spec.Ports[0].NodePort] = true, true
		})
	}
	group.Wait()
	if len(ips)+full != asked {
		t.Errorf("%d given out, %d refused, of %d", len(ips), full, asked)
	}
	if got := r.keys(t, addresses); len(got) != len(ips) {
		t.Errorf("%d claimed, %d in use", len(got), len(ips))
	}
	// The range is fully usable: Services that failed for lack of a port have
	// released their address, so that the rest can be allocated one at a time.
	for i := range 30 - len(ips) {
		if _, err := r.write(t.Context(), service(fmt.Sprintf("late%d", i), func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }), nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.write(t.Context(), service("toomany", nil), nil)
	if err == nil || !strings.Contains(err.Error(), "failed to allocate a serviceIP: range is full") {
		t.Errorf("got %v", err)
	}
}

// Undo gives back what this write took, not what the Service had.
func TestServiceUndo(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	first := service("a", nil)
	if _, err := r.write(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	undo, err := r.write(t.Context(), service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }), first)
	if err != nil {
		t.Fatal(err)
	}
	undo(t.Context())
	if got := append(r.keys(t, addresses), r.keys(t, nodePorts)...); !slices.Equal(got, first.Spec.ClusterIPs) {
		t.Errorf("left: %v, want %v", got, first.Spec.ClusterIPs)
	}
}

func TestRepairServices(t *testing.T) {
	ctx := t.Context()
	r := newRig(t, "10.0.0.0/24", somePorts)
	lost := service("lost", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }) // crashed before its write
	if _, err := r.write(ctx, lost, nil); err != nil {
		t.Fatal(err)
	}
	kept := service("kept", func(s *corev1.ServiceSpec) { // restored without its claims
		s.Type, s.ClusterIP, s.ClusterIPs = corev1.ServiceTypeNodePort, "10.0.0.77", []string{"10.0.0.77"}
		s.Ports[0].NodePort = 30005
	})
	if lost.Spec.Ports[0].NodePort == 30005 {
		kept.Spec.Ports[0].NodePort = 30006
	}
	b := holding(map[string][]scheme.Object{"services": {kept}})

	// A young claim may be of a write that is under way.
	if err := registry.RepairServices(ctx, r.scheme, b, r.cfg); err != nil {
		t.Fatal(err)
	}
	if got := r.keys(t, addresses); !slices.Contains(got, lost.Spec.ClusterIP) || !slices.Contains(got, "10.0.0.77") {
		t.Errorf("claimed: %v", got)
	}
	later := r.cfg
	later.Now = func() time.Time { return today.Add(2 * time.Minute) }
	for range 2 { // the second call changes nothing
		if err := registry.RepairServices(ctx, r.scheme, b, later); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"10.0.0.77"}, r.keys(t, addresses)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{fmt.Sprint(kept.Spec.Ports[0].NodePort)}, r.keys(t, nodePorts)); diff != "" {
		t.Error(diff)
	}
}

func TestServiceValidation(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", somePorts)
	for name, row := range map[string]struct {
		reason string
		change func(*corev1.ServiceSpec)
		want   string
	}{
		"NoPorts": {"a Service that leads nowhere", func(s *corev1.ServiceSpec) { s.Ports = nil }, "spec.ports: Required value"},
		"UnnamedPorts": {"several ports are told apart by name",
			func(s *corev1.ServiceSpec) { s.Ports = []corev1.ServicePort{{Port: 1}, {Port: 2, Name: "b"}} }, "spec.ports[0].name: Required value"},
		"SamePortTwice": {"one of them would never be reached",
			func(s *corev1.ServiceSpec) {
				s.Ports = []corev1.ServicePort{{Port: 1, Name: "a"}, {Port: 1, Name: "b"}}
			}, "spec.ports[1]: Duplicate value"},
		"NodePortOfClusterIP": {"it would not be opened",
			func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30000 }, "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		"DualStack": {"the cluster has one family",
			func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) },
			`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`},
		"IPv6": {"and it is IPv4", func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			`spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
		"ExternalNameWithoutName": {"the name is all it has",
			func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }, "spec.externalName: Required value"},
		"AffinityTooLong": {"conntrack keeps a day at most",
			func(s *corev1.ServiceSpec) {
				s.SessionAffinity = corev1.ServiceAffinityClientIP
				s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(86401))}}
			}, "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"},
		"ExternalIPOfLoopback": {"each node would take it for itself",
			func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"127.0.0.1"} },
			`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
	} {
		_, err := r.write(t.Context(), service("a", row.change), nil)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %s:\n got %v\nwant %s", name, row.reason, err, row.want)
		}
	}
}

// The default ipMode of a load balancer address is VIP; only Services of type
// LoadBalancer have one.
func TestServiceStatus(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["services"]
	status := k.Subresources[slices.IndexFunc(k.Subresources, func(s *registry.Subresource) bool { return s.Name == "status" })]
	ingress := []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "192.0.2.2", IPMode: new(corev1.LoadBalancerIPModeProxy)}, {Hostname: "lb.example"}}
	for name, row := range map[string]struct {
		kind corev1.ServiceType
		want string // modes, or the refusal
	}{
		"Balancer":  {corev1.ServiceTypeLoadBalancer, "VIP Proxy -"},
		"ClusterIP": {corev1.ServiceTypeClusterIP, "may only be used when `spec.type` is LoadBalancer"},
	} {
		svc := service("a", func(s *corev1.ServiceSpec) { s.Type = row.kind })
		svc.Status.LoadBalancer.Ingress = ingress
		svc = svc.DeepCopy()
		k.Default(svc)
		var got []string
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if in.IPMode == nil {
				got = append(got, "-")
			} else {
				got = append(got, string(*in.IPMode))
			}
		}
		if errs := status.ValidatePart(svc, svc); len(errs) > 0 {
			got = []string{errs[0].Detail}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: got %v, want %s", name, got, row.want)
		}
	}
}

// Annotations without effect in this version are accepted with a warning.
func TestTopologyModeIsNotSilentlyIgnored(t *testing.T) {
	warnings := newRig(t, "10.0.0.0/24", somePorts).kinds["services"].Warnings
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"None":     {nil, nil},
		"Disabled": {map[string]string{"service.kubernetes.io/topology-mode": "Disabled"}, nil},
		"Auto":     {map[string]string{"service.kubernetes.io/topology-mode": "Auto"}, []string{`metadata.annotations[service.kubernetes.io/topology-mode]: "Auto" has no effect in this version, use spec.trafficDistribution: PreferSameZone`}},
		"Before":   {map[string]string{"service.kubernetes.io/topology-aware-hints": "auto"}, []string{`metadata.annotations[service.kubernetes.io/topology-aware-hints]: "auto" has no effect in this version, use spec.trafficDistribution: PreferSameZone`}},
	} {
		t.Run(name, func(t *testing.T) {
			svc := service("web", nil)
			svc.Annotations = tc.annotations
			if d := cmp.Diff(tc.want, warnings(svc, nil)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
