package conformance

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// network returns the rows of the area network.
func network() []testcase {
	return slices.Concat(names(), endpointRows(), podNetwork(), proxyRows(), services(), serviceTypes())
}

// Ports of the conformance image.
const (
	httpPort  = 8080
	httpsPort = 8443
	udpPort   = 8081
)

// server returns a pod that answers HTTP, HTTPS and UDP with its name.
func server(namespace, name string, labels map[string]string) *corev1.Pod {
	grace, no := int64(0), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{
				Name: "c", Image: conformanceImage, Command: []string{"/conformance", "serve"},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: httpPort}, {Name: "https", ContainerPort: httpsPort}, {Name: "udp", ContainerPort: udpPort, Protocol: corev1.ProtocolUDP}},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(httpPort)}},
				},
			}},
		},
	}
}

// ready creates the pods and waits until all are ready.
func ready(t *testing.T, ctx context.Context, pods ...*corev1.Pod) []*corev1.Pod {
	t.Helper()
	for i := range pods {
		pods[i] = create(t, ctx, pods[i])
	}
	for i := range pods {
		pods[i] = podBecomes(t, ctx, pods[i], "is ready", isReady)
	}
	return pods
}

// asker runs the pod from which a row's requests come.
func asker(t *testing.T, ctx context.Context, namespace string) *corev1.Pod {
	t.Helper()
	return ready(t, ctx, server(namespace, "asker", map[string]string{"is": "asker"}))[0]
}

// ask runs a command of the conformance image in the pod; err tells that it
// failed.
func ask(t *testing.T, ctx context.Context, from *corev1.Pod, command ...string) (string, error) {
	t.Helper()
	out, err := tryExec(ctx, from, "c", append([]string{"/conformance"}, command...)...)
	return strings.TrimSpace(out), err
}

func address(host string, port int32, path string) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + path
}

// getsFrom waits until requests to the address have been answered by exactly
// these pods.
func getsFrom(t *testing.T, ctx context.Context, from *corev1.Pod, host string, port int32, want ...string) {
	t.Helper()
	at := address(host, port, "/hostname")
	slices.Sort(want)
	eventually(t, ctx, at+" is answered by "+strings.Join(want, ", "), func() error {
		got := map[string]bool{}
		for range 15 * len(want) {
			name, err := ask(t, ctx, from, "get", at)
			if err != nil {
				return err
			}
			got[name] = true
			if len(got) == len(want) {
				break
			}
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
			return fmt.Errorf("it is answered by %q", names)
		}
		return nil
	})
}

// refused waits until nothing answers at the address.
func refused(t *testing.T, ctx context.Context, from *corev1.Pod, host string, port int32) {
	t.Helper()
	at := address(host, port, "/hostname")
	eventually(t, ctx, at+" is not answered", func() error {
		if name, err := ask(t, ctx, from, "get", at); err == nil {
			return fmt.Errorf("%s answers", name)
		}
		return nil
	})
}

// answersUDP waits until the address answers datagrams, or until it does not.
func answersUDP(t *testing.T, ctx context.Context, from *corev1.Pod, host string, port int32, want bool) {
	t.Helper()
	at := net.JoinHostPort(host, strconv.Itoa(int(port)))
	eventually(t, ctx, fmt.Sprintf("datagrams to %s are answered: %t", at, want), func() error {
		name, err := ask(t, ctx, from, "udp", at)
		if (err == nil) != want {
			return fmt.Errorf("the answer is %q, %v", name, err)
		}
		return nil
	})
}

// service returns a ClusterIP Service for the pods with the label "app".
func service(name, app string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(httpPort)}},
		},
	}
}

func createService(t *testing.T, ctx context.Context, namespace string, s *corev1.Service) *corev1.Service {
	t.Helper()
	made, err := admin.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
	check(t, err)
	return made
}

// updateService changes the Service by get and update, again after a conflict.
func updateService(t *testing.T, ctx context.Context, namespace, name string, change func(*corev1.Service)) *corev1.Service {
	t.Helper()
	var made *corev1.Service
	eventually(t, ctx, "update of Service "+name, func() error {
		s, err := admin.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(s)
		made, err = admin.CoreV1().Services(namespace).Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
	return made
}

// nodeAddresses returns the internal and external addresses of all nodes.
func nodeAddresses(t *testing.T, ctx context.Context) []string {
	t.Helper()
	list, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(t, err)
	var out []string
	for _, node := range list.Items {
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				out = append(out, a.Address)
			}
		}
	}
	return out
}

// podNetwork returns the rows of packets between pods and nodes.
func podNetwork() []testcase {
	return []testcase{
		{id: "pod-to-pod-http", test: reachesEach(false, false)},
		{id: "pod-to-pod-udp", test: reachesEach(false, true)},
		{id: "node-to-pod-http", test: reachesEach(true, false)},
		{id: "node-to-pod-udp", test: reachesEach(true, true)},
		{id: "hostport-no-conflict", test: hostPorts, serial: true},
	}
}

// reachesEach asks one pod on each node, from a pod or from a node.
func reachesEach(fromNode, udp bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		list, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		check(t, err)
		var servers []*corev1.Pod
		for i, node := range list.Items {
			if len(node.Spec.Taints) == 0 && !node.Spec.Unschedulable {
				pod := server(namespace, fmt.Sprintf("server-%d", i), nil)
				pod.Spec.NodeName = node.Name
				servers = append(servers, pod)
			}
		}
		from := server(namespace, "asker", nil)
		if from.Spec.HostNetwork = fromNode; fromNode { // its ports are the node's: it serves nothing
			from.Spec.Containers[0].Image, from.Spec.Containers[0].Command, from.Spec.Containers[0].Ports = conformanceImage, []string{"/conformance", "grpc", "127.0.0.1:0"}, nil
			from.Spec.Containers[0].ReadinessProbe = nil
		}
		pods := ready(t, ctx, append(servers, from)...)
		from = pods[len(pods)-1]
		for _, pod := range pods[:len(pods)-1] {
			command := []string{"get", address(pod.Status.PodIP, httpPort, "/hostname")}
			if udp {
				command = []string{"udp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(udpPort))}
			}
			eventually(t, ctx, "pod "+pod.Name+" answers", func() error {
				got, err := ask(t, ctx, from, command...)
				if err == nil && got != pod.Name {
					err = fmt.Errorf("%q answers", got)
				}
				return err
			})
		}
	}
}

// hostPorts has three pods on one node with one host port: they differ in the
// address or in the protocol.
func hostPorts(t *testing.T, ctx context.Context, namespace string) {
	const port = 54323
	first := server(namespace, "first", nil)
	first.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, HostIP: "127.0.0.1", ContainerPort: httpPort}}
	first = ready(t, ctx, first)[0]
	second, third := server(namespace, "second", nil), server(namespace, "third", nil)
	second.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, HostIP: first.Status.HostIP, ContainerPort: httpPort}}
	third.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, HostIP: first.Status.HostIP, ContainerPort: udpPort, Protocol: corev1.ProtocolUDP}}
	from := server(namespace, "asker", nil)
	from.Spec.HostNetwork = true
	from.Spec.Containers[0].Command, from.Spec.Containers[0].Ports, from.Spec.Containers[0].ReadinessProbe = []string{"/conformance", "grpc", "127.0.0.1:0"}, nil, nil
	for _, pod := range []*corev1.Pod{second, third, from} {
		pod.Spec.NodeName = first.Spec.NodeName
	}
	pods := ready(t, ctx, second, third, from)
	from = pods[2]
	getsFrom(t, ctx, from, "127.0.0.1", port, "first")
	getsFrom(t, ctx, from, first.Status.HostIP, port, "second")
	eventually(t, ctx, "the third pod answers datagrams", func() error {
		got, err := ask(t, ctx, from, "udp", net.JoinHostPort(first.Status.HostIP, strconv.Itoa(port)))
		if err == nil && got != "third" {
			err = fmt.Errorf("%q answers", got)
		}
		return err
	})
}
