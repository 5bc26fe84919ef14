package multinode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// balancer is an address that no node announces: kube-proxy serves it to clients on the nodes.
const balancer = "192.0.2.77"

// trafficServices select one, a pod on the first worker that terminates slowly, or one and two,
// a pod on the second worker. No controller handles load balancers of their class.
const trafficServices = `
apiVersion: v1
kind: Service
metadata: {name: external}
spec: {type: LoadBalancer, loadBalancerClass: e2e.example/none, externalTrafficPolicy: Local, selector: {local: "yes"}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: internal}
spec: {internalTrafficPolicy: Local, selector: {local: "yes"}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: node}
spec: {trafficDistribution: PreferSameNode, selector: {set: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: zone}
spec: {trafficDistribution: PreferClose, selector: {set: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: ranges}
spec: {type: LoadBalancer, loadBalancerClass: e2e.example/none, loadBalancerSourceRanges: [%s/32], selector: {set: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {set: web, local: "yes"}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 15
  containers: [{name: c, image: "localhost/podium/web:v1", command: [/web], lifecycle: {preStop: {sleep: {seconds: 12}}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: two, labels: {set: web}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/podium/web:v1", command: [/web]}]
`

// byHand is a Service with endpoints that the test writes.
const byHand = `
apiVersion: v1
kind: Service
metadata: {name: byhand}
spec: {ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: byhand}
subsets: [{addresses: [{ip: %s}], ports: [{port: 8080}]}]
`

// A Service whose traffic policies keep traffic on a node, near, or from certain sources gets
// that on every node; and a terminating pod serves while it can if there is no other.
func TestTrafficPolicies(t *testing.T) {
	s := the.space(t)
	for name, node := range map[string]string{"near": worker1, "far": worker2} {
		s.Apply(pinned(name, node, "localhost/podium/web:v1", "/web"))
	}
	near := s.Ready("near").Status.PodIP
	s.Ready("far")
	s.Apply(fmt.Sprintf(trafficServices, near, worker1, worker2))
	s.Ready("one")
	s.Ready("two")
	s.balance("ranges")

	t.Log("externalTrafficPolicy: Local")
	port := s.NodePort("external")
	s.until("the node of the pod answers, and shows who asks", func(ctx context.Context) error {
		who, err := fetch(ctx, fmt.Sprintf("http://%s:%d/client", s.Address(worker1), port))
		if err == nil && who != s.gateway() {
			err = fmt.Errorf("the pod saw %s, not this host's %s", who, s.gateway())
		}
		return err
	})
	if who, err := get(t.Context(), s.Address(worker2), port); err == nil {
		t.Errorf("a node without a pod answers: %s", who)
	}
	s.health("external", worker1, http.StatusOK)
	s.health("external", worker2, http.StatusServiceUnavailable)

	t.Log("internalTrafficPolicy: Local")
	s.answers("near", s.clusterIP("internal"), "one")
	s.silent("far", s.clusterIP("internal"))

	t.Log("trafficDistribution")
	s.answers("near", s.clusterIP("node"), "one")
	s.answers("far", s.clusterIP("node"), "two")
	s.zones(map[string]string{worker1: "a", worker2: "b"})
	s.answers("near", s.clusterIP("zone"), "one")
	s.answers("far", s.clusterIP("zone"), "two")

	t.Log("loadBalancerSourceRanges")
	s.until("who may is answered", func(ctx context.Context) error {
		_, err := s.ask(ctx, "near", balancer)
		return err
	})
	s.silent("far", balancer)

	t.Log("endpoints written by hand")
	s.Apply(fmt.Sprintf(byHand, s.Ready("two").Status.PodIP))
	s.answers("near", s.clusterIP("byhand"), "two")

	t.Log("a pod that ends")
	if err := s.Pods.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.health("external", worker1, http.StatusServiceUnavailable)
	if who, err := get(t.Context(), s.Address(worker1), port); err != nil || who != "one" {
		t.Errorf("the only pod of a node serves until it has ended: %q, %v", who, err)
	}
	s.answers("near", s.clusterIP("internal"), "one")
	s.answers("near", s.clusterIP("node"), "two") // the one on another node is ready
	if p, err := s.Pods.Get(t.Context(), "one"); err != nil || p.DeletionTimestamp == nil {
		t.Errorf("the pod was to be on its way out all the time: %v", err)
	}
}

func (s *space) until(what string, check func(context.Context) error) {
	s.T.Helper()
	docked.Eventually(s.T, 15*time.Second, what, check)
}

// gateway returns this host's address on the nodes' network.
func (s *space) gateway() string {
	s.T.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(s.Address(worker1), "9")) // sends nothing
	if err != nil {
		s.T.Fatal(err)
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		s.T.Fatal(err)
	}
	return host
}

func (s *space) service(name string) *corev1.Service {
	s.T.Helper()
	svc, err := client.For[*corev1.Service](s.API).In(s.Namespace).Get(s.T.Context(), name)
	if err != nil {
		s.T.Fatal(err)
	}
	return svc
}

func (s *space) clusterIP(service string) string { return s.service(service).Spec.ClusterIP }

// balance gives a Service the balancer's address.
func (s *space) balance(service string) {
	s.T.Helper()
	svc := s.service(service)
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancer}}
	if _, err := client.For[*corev1.Service](s.API).In(s.Namespace).UpdateStatus(s.T.Context(), svc); err != nil {
		s.T.Fatal(err)
	}
}

// health waits for the health check answer of a node's kube-proxy for a Service.
func (s *space) health(service, node string, want int) {
	s.T.Helper()
	url := fmt.Sprintf("http://%s:%d/", s.Address(node), s.service(service).Spec.HealthCheckNodePort)
	s.until(fmt.Sprintf("the health check port of %s says %d on %s", service, want, node), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// zones sets the nodes' zones until the test ends.
func (s *space) zones(of map[string]string) {
	s.T.Helper()
	nodes := client.For[*corev1.Node](s.API)
	label := func(ctx context.Context, node, value string) error {
		_, err := nodes.Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+corev1.LabelTopologyZone+`":`+value+`}}}`))
		return err
	}
	for node, zone := range of {
		if err := label(s.T.Context(), node, `"`+zone+`"`); err != nil {
			s.T.Fatal(err)
		}
		s.T.Cleanup(func() {
			if err := label(context.Background(), node, "null"); err != nil {
				s.T.Error(err)
			}
		})
	}
}

// ask sends a request from a pod, each time on a new connection.
func (s *space) ask(ctx context.Context, from, address string) (string, error) {
	out, err := s.Try(ctx, "", "exec", "-n", s.Namespace, from, "--", "/web", "get", "http://"+address+"/")
	return strings.TrimSpace(out), err
}

// answers waits until a pod gets eight consecutive answers from the expected pod.
func (s *space) answers(from, address, want string) {
	s.T.Helper()
	s.until(want+" alone answers "+from+" at "+address, func(ctx context.Context) error {
		for range 8 {
			out, err := s.ask(ctx, from, address)
			if err == nil && out != want {
				err = fmt.Errorf("%q answered", out)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// silent checks that a pod gets no answer.
func (s *space) silent(from, address string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), 3*time.Second)
	defer cancel()
	if out, err := s.ask(ctx, from, address); err == nil {
		s.T.Errorf("%s is answered at %s: by %s", from, address, out)
	}
}
