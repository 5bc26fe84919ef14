package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that is not ready gets no requests from the Service, and keeps running; when it is ready
// again it gets its share.
func TestReadinessTakesPodOut(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(2))
	s.rolledOut("web")
	node, url := fromNode(t, false), s.url("web")
	node.answers(t, url, 2)
	sick := s.pods("app=web")[0]
	at := "http://" + sick.Status.PodIP + ":8080"

	if _, err := node.do("POST", at+"/fail"); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.pod(sick.Name, "is not ready", func(p *corev1.Pod) bool { return !isReady(p) })
	eventually(t, 10*time.Second, "the sick pod is out of the Service", func() error {
		for range 20 {
			if name, err := node.get(url); err != nil || name == sick.Name {
				return fmt.Errorf("answered by %q, %v", name, err)
			}
		}
		return nil
	})
	t.Logf("out of the Service %v after it fell sick, with a probe a second", time.Since(begin).Round(time.Millisecond))
	if name, err := node.get(at); name != sick.Name {
		t.Errorf("asked directly, the sick pod answers %q, %v", name, err)
	}
	if _, err := node.do("POST", at+"/heal"); err != nil {
		t.Fatal(err)
	}
	node.answers(t, url, 2)
	if now := s.ready(sick.Name); now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it was restarted: %s", describe(now))
	}
}

// All paths to a pod: by its address, a Service's address, a node port, a host port; from the node
// and from other pods, itself included.
func TestWaysToAPod(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(2) + `
---
apiVersion: v1
kind: Service
metadata: {name: ported}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {selector: {app: web}, sessionAffinity: ClientIP, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: hosted}
spec:
  containers:
    - name: web
      image: localhost/podium/web:v1
      ports: [{containerPort: 8080, hostPort: 18080}]
      readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
`)
	s.rolledOut("web")
	s.ready("hosted")
	web := s.pods("app=web")
	node, pod := fromNode(t, false), fromPod(t, web[0], false)
	nodePort := s.service("ported").Spec.Ports[0].NodePort

	for _, way := range []struct {
		name, url string
		pods      int
	}{
		{"another pod's address", "http://" + web[1].Status.PodIP + ":8080/", 1},
		{"a Service with itself behind it", s.url("web"), 2},
		{"a port of the node", fmt.Sprintf("http://%s:%d/", nodeIP, nodePort), 2},
		{"a host port", "http://" + nodeIP + ":18080/", 1},
	} {
		t.Run(way.name, func(t *testing.T) {
			node.answers(t, way.url, way.pods)
			pod.answers(t, way.url, way.pods)
		})
	}

	t.Run("session affinity", func(t *testing.T) {
		for _, from := range []*visitor{node, pod} {
			from.answers(t, s.url("sticky"), 1)
			first, err := from.get(s.url("sticky"))
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if name, err := from.get(s.url("sticky")); name != first {
					t.Fatalf("from the %s, after %s answers %q, %v", from.name, first, name, err)
				}
			}
		}
	})

	t.Run("headless", func(t *testing.T) {
		rules, err := exec.Command("iptables-save", "-t", "nat").Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(rules), s.name+"/headless") || !strings.Contains(string(rules), s.name+"/web") {
			t.Error("the rules should speak of web and not of headless")
		}
		s.endpoints("headless", web)
	})
}

// endpoints waits until a Service's slices contain exactly these pods.
func (s *space) endpoints(service string, pods []*corev1.Pod) {
	s.Helper()
	var want []string
	for _, p := range pods {
		want = append(want, p.Status.PodIP)
	}
	slices.Sort(want)
	eventually(s.T, 10*time.Second, "the slices of "+service+" are right", func() error {
		list, err := in[*discoveryv1.EndpointSlice](s).List(s.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return err
		}
		var got []string
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				got = append(got, e.Addresses...)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("they hold %v, want %v", got, want)
		}
		return nil
	})
}
