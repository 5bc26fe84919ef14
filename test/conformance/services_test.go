package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

// services returns the rows of Services and their traffic.
func services() []testcase {
	return []testcase{
		{id: "kubernetes-service-exists", test: kubernetesService},
		{id: "service-basic-endpoints", test: basicEndpoints},
		{id: "service-multiport-endpoints", test: multiport},
		{id: "service-nodeport", test: nodePort},
		{id: "service-same-port-tcp-udp", test: samePort},
		{id: "service-affinity-clusterip", test: affinity(corev1.ServiceTypeClusterIP, false)},
		{id: "service-affinity-nodeport", test: affinity(corev1.ServiceTypeNodePort, false)},
		{id: "service-affinity-switch-clusterip", test: affinity(corev1.ServiceTypeClusterIP, true)},
		{id: "service-affinity-switch-nodeport", test: affinity(corev1.ServiceTypeNodePort, true)},
		{id: "service-deletecollection", test: serviceDeleteCollection},
		{id: "service-list-all-namespaces", test: serviceList},
		{id: "service-status-lifecycle", test: serviceStatus},
		{id: "service-endpoint-latency", test: endpointLatency, serial: true},
	}
}

func kubernetesService(t *testing.T, ctx context.Context, _ string) {
	_, err := admin.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	check(t, err)
}

func serviceList(t *testing.T, ctx context.Context, _ string) {
	list, err := admin.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	check(t, err)
	if !slices.ContainsFunc(list.Items, func(s corev1.Service) bool { return s.Namespace == "default" && s.Name == "kubernetes" }) {
		t.Error("the list lacks default/kubernetes")
	}
}

// endpointsAre waits until the Endpoints of a Service list exactly these pods.
func endpointsAre(t *testing.T, ctx context.Context, namespace, name string, want ...*corev1.Pod) {
	t.Helper()
	var ips []string
	for _, pod := range want {
		ips = append(ips, pod.Status.PodIP)
	}
	slices.Sort(ips)
	eventually(t, ctx, fmt.Sprintf("Endpoints %s list %q", name, ips), func() error {
		e, err := admin.CoreV1().Endpoints(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				got = append(got, a.IP)
			}
		}
		if slices.Sort(got); !slices.Equal(got, ips) {
			return fmt.Errorf("they list %q", got)
		}
		return nil
	})
}

func deletePod(t *testing.T, ctx context.Context, pod *corev1.Pod) {
	t.Helper()
	check(t, admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}))
}

func basicEndpoints(t *testing.T, ctx context.Context, namespace string) {
	s, from := createService(t, ctx, namespace, service("svc", "svc")), asker(t, ctx, namespace)
	labels := map[string]string{"app": "svc"}
	endpointsAre(t, ctx, namespace, "svc")
	first := ready(t, ctx, server(namespace, "first", labels))[0]
	endpointsAre(t, ctx, namespace, "svc", first)
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "first")
	second := ready(t, ctx, server(namespace, "second", labels))[0]
	endpointsAre(t, ctx, namespace, "svc", first, second)
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "first", "second")
	deletePod(t, ctx, first)
	endpointsAre(t, ctx, namespace, "svc", second)
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "second")
	deletePod(t, ctx, second)
	endpointsAre(t, ctx, namespace, "svc")
	refused(t, ctx, from, s.Spec.ClusterIP, 80)
}

// multiport has a Service with two ports whose targets are names: each pod has
// one of them.
func multiport(t *testing.T, ctx context.Context, namespace string) {
	from, labels := asker(t, ctx, namespace), map[string]string{"app": "svc"}
	s := service("svc", "svc")
	s.Spec.Ports = []corev1.ServicePort{
		{Name: "one", Port: 80, TargetPort: intstr.FromString("one")}, {Name: "two", Port: 81, TargetPort: intstr.FromString("two")},
	}
	s = createService(t, ctx, namespace, s)
	named := func(name, port string) *corev1.Pod {
		pod := server(namespace, name, labels)
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: port, ContainerPort: httpPort}}
		return pod
	}
	first := ready(t, ctx, named("first", "one"))[0]
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "first")
	refused(t, ctx, from, s.Spec.ClusterIP, 81)
	ready(t, ctx, named("second", "two"))
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "first")
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 81, "second")
	deletePod(t, ctx, first)
	refused(t, ctx, from, s.Spec.ClusterIP, 80)
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 81, "second")
}

func nodePort(t *testing.T, ctx context.Context, namespace string) {
	from := asker(t, ctx, namespace)
	s := service("svc", "svc")
	s.Spec.Type = corev1.ServiceTypeNodePort
	s = createService(t, ctx, namespace, s)
	ready(t, ctx, server(namespace, "first", map[string]string{"app": "svc"}), server(namespace, "second", map[string]string{"app": "svc"}))
	reachable(t, ctx, from, s, "first", "second")
}

// reachable asks for the Service by its name, its ClusterIP and the port of
// every node.
func reachable(t *testing.T, ctx context.Context, from *corev1.Pod, s *corev1.Service, want ...string) {
	t.Helper()
	getsFrom(t, ctx, from, s.Name, s.Spec.Ports[0].Port, want...)
	getsFrom(t, ctx, from, s.Spec.ClusterIP, s.Spec.Ports[0].Port, want...)
	if s.Spec.Ports[0].NodePort == 0 {
		return
	}
	for _, node := range nodeAddresses(t, ctx) {
		getsFrom(t, ctx, from, node, s.Spec.Ports[0].NodePort, want...)
	}
}

func samePort(t *testing.T, ctx context.Context, namespace string) {
	from := asker(t, ctx, namespace)
	tcp := corev1.ServicePort{Name: "tcp", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(httpPort)}
	udp := corev1.ServicePort{Name: "udp", Port: 80, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(udpPort)}
	s := service("svc", "svc")
	s.Spec.Ports = []corev1.ServicePort{tcp, udp}
	s = createService(t, ctx, namespace, s)
	ready(t, ctx, server(namespace, "pod", map[string]string{"app": "svc"}))
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "pod")
	answersUDP(t, ctx, from, s.Spec.ClusterIP, 80, true)
	updateService(t, ctx, namespace, "svc", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{tcp} })
	answersUDP(t, ctx, from, s.Spec.ClusterIP, 80, false)
	getsFrom(t, ctx, from, s.Spec.ClusterIP, 80, "pod")
	updateService(t, ctx, namespace, "svc", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{udp} })
	refused(t, ctx, from, s.Spec.ClusterIP, 80)
	answersUDP(t, ctx, from, s.Spec.ClusterIP, 80, true)
}

// affinity has three backends. With affinity a client reaches one of them;
// without, all. A switch begins without affinity.
func affinity(kind corev1.ServiceType, switched bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		from, labels := asker(t, ctx, namespace), map[string]string{"app": "svc"}
		s := service("svc", "svc")
		s.Spec.Type, s.Spec.SessionAffinity = kind, corev1.ServiceAffinityClientIP
		if switched {
			s.Spec.SessionAffinity = corev1.ServiceAffinityNone
		}
		s = createService(t, ctx, namespace, s)
		ready(t, ctx, server(namespace, "one", labels), server(namespace, "two", labels), server(namespace, "three", labels))
		host, port := s.Spec.ClusterIP, int32(80)
		if kind == corev1.ServiceTypeNodePort {
			host, port = nodeAddresses(t, ctx)[0], s.Spec.Ports[0].NodePort
		}
		if switched {
			getsFrom(t, ctx, from, host, port, "one", "two", "three")
			updateService(t, ctx, namespace, "svc", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
		}
		sticks(t, ctx, from, address(host, port, "/hostname"))
		if kind == corev1.ServiceTypeNodePort && !switched {
			sticks(t, ctx, from, address("svc", 80, "/hostname"))
			sticks(t, ctx, from, address(s.Spec.ClusterIP, 80, "/hostname"))
		}
	}
}

// sticks waits until fifteen requests in a row reach the same pod.
func sticks(t *testing.T, ctx context.Context, from *corev1.Pod, at string) {
	t.Helper()
	eventually(t, ctx, at+" is answered by one pod", func() error {
		first := ""
		for range 15 {
			name, err := ask(t, ctx, from, "get", at)
			if err != nil {
				return err
			}
			if first == "" {
				first = name
			}
			if name != first {
				return fmt.Errorf("%s and %s answer", first, name)
			}
		}
		return nil
	})
}

func serviceDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	for name, label := range map[string]string{"one": "yes", "two": "yes", "three": "no"} {
		s := service(name, name)
		s.Labels = map[string]string{"delete": label}
		createService(t, ctx, namespace, s)
	}
	check(t, admin.CoreV1().RESTClient().Delete().Namespace(namespace).Resource("services").Param("labelSelector", "delete=yes").Do(ctx).Error()) // the typed client lacks it
	list, err := admin.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Name != "three" {
		t.Errorf("%d Services are left", len(list.Items))
	}
}

func serviceStatus(t *testing.T, ctx context.Context, namespace string) {
	services := admin.CoreV1().Services(namespace)
	s := service("svc", "svc")
	s.Labels = map[string]string{"test": namespace}
	w, err := services.Watch(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	defer w.Stop()
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	createService(t, ctx, namespace, s)
	sees[*corev1.Service](t, ctx, w, watch.Added, nil)

	_, err = services.Get(ctx, "svc", metav1.GetOptions{})
	check(t, err)
	patch := `{"metadata":{"annotations":{"patchedstatus":"true"}},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1"}]}}}`
	_, err = services.Patch(ctx, "svc", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(s *corev1.Service) bool {
		return s.Annotations["patchedstatus"] == "true" && len(s.Status.LoadBalancer.Ingress) == 1 && s.Status.LoadBalancer.Ingress[0].IP == "203.0.113.1"
	})
	eventually(t, ctx, "the status is updated", func() error {
		got, err := services.Get(ctx, "svc", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got.Status.Conditions = append(got.Status.Conditions, metav1.Condition{Type: "StatusUpdate", Status: metav1.ConditionTrue, Reason: "E2E", Message: "set by the test", LastTransitionTime: metav1.Now()})
		_, err = services.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	})
	sees(t, ctx, w, watch.Modified, func(s *corev1.Service) bool { return len(s.Status.Conditions) == 1 })
	_, err = services.Patch(ctx, "svc", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(s *corev1.Service) bool { return s.Labels["patched"] == "yes" && len(s.Status.Conditions) == 1 })
	check(t, services.Delete(ctx, "svc", metav1.DeleteOptions{}))
	sees[*corev1.Service](t, ctx, w, watch.Deleted, nil)
}

// endpointLatency creates Services for one ready pod and measures how long it
// takes until a watch shows their endpoints.
func endpointLatency(t *testing.T, ctx context.Context, namespace string) {
	const tries, parallel = 200, 15
	ready(t, ctx, server(namespace, "pod", map[string]string{"app": "svc"}))
	w, err := admin.CoreV1().Endpoints(namespace).Watch(ctx, metav1.ListOptions{})
	check(t, err)
	defer w.Stop()
	var mu sync.Mutex
	filled := map[string]chan time.Time{}
	of := func(name string) chan time.Time {
		mu.Lock()
		defer mu.Unlock()
		if filled[name] == nil {
			filled[name] = make(chan time.Time, 1)
		}
		return filled[name]
	}
	go func() {
		for e := range w.ResultChan() {
			if endpoints, ok := e.Object.(*corev1.Endpoints); ok && len(endpoints.Subsets) > 0 {
				select {
				case of(endpoints.Name) <- time.Now():
				default:
				}
			}
		}
	}()
	var group sync.WaitGroup
	var latencies []time.Duration
	seats := make(chan struct{}, parallel)
	for i := range tries {
		seats <- struct{}{}
		group.Go(func() {
			defer func() { <-seats }()
			s := service(fmt.Sprintf("svc-%d", i), "svc")
			if _, err := admin.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
				return
			}
			created := time.Now()
			select {
			case at := <-of(s.Name):
				mu.Lock()
				latencies = append(latencies, at.Sub(created))
				mu.Unlock()
			case <-time.After(time.Minute):
			}
		})
	}
	group.Wait()
	if len(latencies) < tries*95/100 {
		t.Fatalf("only %d of %d Services got endpoints", len(latencies), tries)
	}
	slices.Sort(latencies)
	median, tail := latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	t.Logf("median %s, 99th percentile %s", median, tail)
	if median > 20*time.Second || tail > 50*time.Second {
		t.Errorf("median %s, 99th percentile %s", median, tail)
	}
}

// serviceTypes returns the rows of Services that change their type.
func serviceTypes() []testcase {
	return []testcase{
		{id: "service-externalname-to-clusterip", test: fromExternalName(corev1.ServiceTypeClusterIP)},
		{id: "service-externalname-to-nodeport", test: fromExternalName(corev1.ServiceTypeNodePort)},
		{id: "service-clusterip-to-externalname", test: toExternalName(corev1.ServiceTypeClusterIP)},
		{id: "service-nodeport-to-externalname", test: toExternalName(corev1.ServiceTypeNodePort)},
	}
}

func fromExternalName(kind corev1.ServiceType) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		from := asker(t, ctx, namespace)
		s := createService(t, ctx, namespace, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "svc"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "foo.example.com"},
		})
		if s.Spec.ClusterIP != "" {
			t.Errorf("a Service of type ExternalName has the ClusterIP %s", s.Spec.ClusterIP)
		}
		ready(t, ctx, server(namespace, "first", map[string]string{"app": "svc"}), server(namespace, "second", map[string]string{"app": "svc"}))
		s = updateService(t, ctx, namespace, "svc", func(s *corev1.Service) {
			want := service("svc", "svc")
			s.Spec.Type, s.Spec.ExternalName, s.Spec.Ports, s.Spec.Selector = kind, "", want.Spec.Ports, want.Spec.Selector
		})
		if s.Spec.ClusterIP == "" || kind == corev1.ServiceTypeNodePort && s.Spec.Ports[0].NodePort == 0 {
			t.Fatalf("nothing is allocated: %+v", s.Spec)
		}
		reachable(t, ctx, from, s, "first", "second")
	}
}

// toExternalName turns a Service into an alias for another one, whose name the
// cluster resolves.
func toExternalName(kind corev1.ServiceType) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		from := asker(t, ctx, namespace)
		s := service("svc", "svc")
		s.Spec.Type = kind
		s = createService(t, ctx, namespace, s)
		port := s.Spec.Ports[0].NodePort
		target := createService(t, ctx, namespace, service("target", "svc"))
		ready(t, ctx, server(namespace, "pod", map[string]string{"app": "svc"}))
		getsFrom(t, ctx, from, "svc", 80, "pod")
		name := "target." + namespace + ".svc." + clusterDomain
		s = updateService(t, ctx, namespace, "svc", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, name, "", nil
			if kind == corev1.ServiceTypeNodePort {
				s.Spec.Ports[0].NodePort = 0
			}
		})
		if s.Spec.ClusterIP != "" {
			t.Errorf("it keeps the ClusterIP %s", s.Spec.ClusterIP)
		}
		resolves(t, ctx, from, "A", "svc."+namespace+".svc."+clusterDomain+".", target.Spec.ClusterIP)
		if kind == corev1.ServiceTypeNodePort { // the port can be had again
			other := service("other", "svc")
			other.Spec.Type, other.Spec.Ports[0].NodePort = kind, port
			if _, err := admin.CoreV1().Services(namespace).Create(ctx, other, metav1.CreateOptions{}); err != nil && !apierrors.IsInvalid(err) {
				t.Error(err)
			} else if err != nil {
				t.Errorf("the node port %d is not free: %v", port, err)
			}
		}
	}
}
