package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A load balancer's address is served on the node, for the clients in
// loadBalancerSourceRanges and according to the traffic policy. The Service's health check
// port reports whether the node has endpoints.
func TestBalancerAddress(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(2) + `
---
apiVersion: v1
kind: Service
metadata: {name: open}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: closed}
spec: {type: LoadBalancer, loadBalancerSourceRanges: [198.51.100.0/24], allocateLoadBalancerNodePorts: false, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: nobody}, ports: [{port: 80, targetPort: http}]}
`)
	s.rolledOut("web")
	for name, ip := range map[string]string{"open": "203.0.113.50", "closed": "203.0.113.51"} {
		svc := s.service(name)
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
		stored, err := in[*corev1.Service](s).UpdateStatus(t.Context(), svc)
		if err != nil {
			t.Fatal(err)
		}
		if mode := stored.Status.LoadBalancer.Ingress[0].IPMode; mode == nil || *mode != corev1.LoadBalancerIPModeVIP {
			t.Errorf("%s: the address has mode %v, not VIP", name, mode)
		}
	}
	node, pod := fromNode(t, false), fromPod(t, s.pods("app=web")[0], false)
	node.answers(t, "http://203.0.113.50/", 2)
	pod.answers(t, "http://203.0.113.50/", 2)
	if p := s.service("closed").Spec.Ports[0].NodePort; p != 0 {
		t.Errorf("a node port, %d, though none was wanted", p)
	}

	shut := fromNode(t, false)
	shut.http.Timeout = 500 * time.Millisecond
	eventually(t, 10*time.Second, "strangers are kept out", func() error {
		if name, err := shut.get("http://203.0.113.51/"); err == nil {
			return fmt.Errorf("%s answers one from outside the ranges", name)
		} else if !strings.Contains(err.Error(), "Timeout") && !strings.Contains(err.Error(), "deadline") {
			return fmt.Errorf("not dropped in silence: %w", err)
		}
		return nil
	})

	health := func(name, want string) {
		t.Helper()
		url := fmt.Sprintf("http://%s:%d/", nodeIP, s.service(name).Spec.HealthCheckNodePort)
		eventually(t, 10*time.Second, "the health check port of "+name, func() error {
			answer, err := node.http.Get(url)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if got := fmt.Sprint(answer.StatusCode, " ", answer.Header.Get("X-Load-Balancing-Endpoint-Weight")); got != want {
				err = fmt.Errorf("code and weight are %s, not %s", got, want)
			}
			return err
		})
	}
	health("open", "200 2")
	health("empty", "503 0")
}
