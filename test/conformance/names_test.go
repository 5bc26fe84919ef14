package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const clusterDomain = "cluster.local"

// names returns the rows of the cluster's DNS.
func names() []testcase {
	return []testcase{
		{id: "dns-cluster", test: clusterNames},
		{id: "dns-custom-dnsconfig", test: customDNS},
		{id: "dns-etc-hosts", test: ownNames},
		{id: "dns-externalname", test: externalName},
		{id: "dns-pod-hostname", test: podHostname},
		{id: "dns-pod-subdomain", test: podSubdomain},
		{id: "dns-pqdn", test: partialNames},
		{id: "dns-services", test: serviceNames},
	}
}

// resolves waits until the name has exactly these records, over UDP and TCP.
func resolves(t *testing.T, ctx context.Context, from *corev1.Pod, kind, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	for _, protocol := range []string{"udp", "tcp"} {
		eventually(t, ctx, kind+" "+name+" over "+protocol, func() error {
			got, err := ask(t, ctx, from, "dig", protocol, kind, name)
			if err == nil && got != strings.Join(want, "\n") {
				err = fmt.Errorf("the records are %q, want %q", got, want)
			}
			return err
		})
	}
}

func clusterNames(t *testing.T, ctx context.Context, namespace string) {
	kubernetes, err := admin.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	check(t, err)
	resolves(t, ctx, asker(t, ctx, namespace), "A", "kubernetes.default.svc."+clusterDomain+".", kubernetes.Spec.ClusterIP)
}

func customDNS(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "pod")
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"resolv.conf.local"}}
	pod = run(t, ctx, pod)
	var settings []string
	for line := range strings.Lines(exec(t, ctx, pod, "c", "cat", "/etc/resolv.conf")) {
		if line = strings.TrimSpace(line); line != "" {
			settings = append(settings, line)
		}
	}
	slices.Sort(settings)
	if want := []string{"nameserver 1.1.1.1", "search resolv.conf.local"}; !slices.Equal(settings, want) {
		t.Errorf("/etc/resolv.conf has %q, want %q", settings, want)
	}
}

// ownNames resolves the pod's own names by /etc/hosts: the resolver does not
// ask a name server for them.
func ownNames(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "pod")
	pod.Spec.Hostname, pod.Spec.Subdomain = "dns-querier", "dns-test-service"
	pod = run(t, ctx, pod)
	fqdn := "dns-querier.dns-test-service." + namespace + ".svc." + clusterDomain
	want := []string{pod.Status.PodIP, fqdn, "dns-querier"}
	for line := range strings.Lines(exec(t, ctx, pod, "c", "cat", "/etc/hosts")) {
		if slices.Equal(strings.Fields(line), want) {
			return
		}
	}
	t.Errorf("/etc/hosts has no line %q", want)
}

func externalName(t *testing.T, ctx context.Context, namespace string) {
	from := asker(t, ctx, namespace)
	createService(t, ctx, namespace, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "alias"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "foo.example.com"},
	})
	name := "alias." + namespace + ".svc." + clusterDomain + "."
	resolves(t, ctx, from, "CNAME", name, "foo.example.com.")
	updateService(t, ctx, namespace, "alias", func(s *corev1.Service) { s.Spec.ExternalName = "bar.example.com" })
	resolves(t, ctx, from, "CNAME", name, "bar.example.com.")
	s := updateService(t, ctx, namespace, "alias", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, Name: "http"}}
	})
	resolves(t, ctx, from, "A", name, s.Spec.ClusterIP)
}

func headless(name string) *corev1.Service {
	s := service(name, name)
	s.Spec.ClusterIP = corev1.ClusterIPNone
	return s
}

func podHostname(t *testing.T, ctx context.Context, namespace string) {
	createService(t, ctx, namespace, headless("dns-test-service-2"))
	pod := server(namespace, "pod", map[string]string{"app": "dns-test-service-2"})
	pod.Spec.Hostname, pod.Spec.Subdomain = "dns-querier-2", "dns-test-service-2"
	pod = ready(t, ctx, pod)[0]
	name := "dns-querier-2.dns-test-service-2." + namespace + ".svc." + clusterDomain + "."
	resolves(t, ctx, pod, "A", name, pod.Status.PodIP)
	resolves(t, ctx, pod, "A", "dns-querier-2", pod.Status.PodIP) // by /etc/hosts
}

func podSubdomain(t *testing.T, ctx context.Context, namespace string) {
	createService(t, ctx, namespace, headless("sub"))
	pod := server(namespace, "pod", map[string]string{"app": "sub"})
	pod.Spec.Hostname, pod.Spec.Subdomain = "dns-querier", "sub"
	pod = ready(t, ctx, pod)[0]
	resolves(t, ctx, pod, "A", "sub."+namespace+".svc."+clusterDomain+".", pod.Status.PodIP)
}

// partialNames looks short names up by the search list.
func partialNames(t *testing.T, ctx context.Context, namespace string) {
	pod := ready(t, ctx, server(namespace, "pod", map[string]string{"app": "svc"}))[0]
	s := createService(t, ctx, namespace, service("svc", "svc"))
	createService(t, ctx, namespace, func() *corev1.Service { h := headless("headless"); h.Spec.Selector["app"] = "svc"; return h }())
	for _, suffix := range []string{"", "." + namespace, "." + namespace + ".svc"} {
		resolves(t, ctx, pod, "A", "svc"+suffix, s.Spec.ClusterIP)
		resolves(t, ctx, pod, "A", "headless"+suffix, pod.Status.PodIP)
		resolves(t, ctx, pod, "SRV", "_http._tcp.svc"+suffix, "svc."+namespace+".svc."+clusterDomain+".:80")
	}
}

// serviceNames looks up A, SRV and PTR records of a headless and an ordinary
// Service.
func serviceNames(t *testing.T, ctx context.Context, namespace string) {
	pod := ready(t, ctx, server(namespace, "pod", map[string]string{"app": "svc"}))[0]
	from := asker(t, ctx, namespace) // another pod: /etc/hosts has a pod's own name
	h := headless("headless")
	h.Spec.Selector["app"], h.Spec.Ports[0].TargetPort = "svc", intstr.FromInt32(httpPort)
	createService(t, ctx, namespace, h)
	s := createService(t, ctx, namespace, service("svc", "svc"))
	zone := namespace + ".svc." + clusterDomain + "."
	resolves(t, ctx, from, "A", "svc."+zone, s.Spec.ClusterIP)
	resolves(t, ctx, from, "A", "headless."+zone, pod.Status.PodIP)
	resolves(t, ctx, from, "SRV", "_http._tcp.svc."+zone, "svc."+zone+":80")
	resolves(t, ctx, from, "PTR", s.Spec.ClusterIP, "svc."+zone)
	eventually(t, ctx, "the headless Service has an SRV record", func() error {
		got, err := ask(t, ctx, from, "dig", "udp", "SRV", "_http._tcp.headless."+zone)
		if err == nil && (!strings.HasSuffix(got, ".headless."+zone+fmt.Sprintf(":%d", httpPort)) || strings.Contains(got, "\n")) {
			err = fmt.Errorf("the records are %q", got)
		}
		return err
	})
	eventually(t, ctx, "the pod's address has a name", func() error {
		got, err := ask(t, ctx, from, "dig", "tcp", "PTR", pod.Status.PodIP)
		if err == nil && !strings.Contains(got+"\n", ".headless."+zone+"\n") { // the other Service may give it a name, too
			err = fmt.Errorf("the records are %q", got)
		}
		return err
	})
	if _, err := netip.ParseAddr(pod.Status.PodIP); err != nil {
		t.Error(err)
	}
}
