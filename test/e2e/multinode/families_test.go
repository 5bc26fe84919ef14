package multinode

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// In clusters with VXLAN, with IPv6, and with a cloud provider's routes, pods reach each other
// across nodes without NAT, also with the largest packets that a pod can send; a Service's port
// answers on every node and its name in every pod.
func TestPodNetworks(t *testing.T) {
	t.Run("VXLAN", func(t *testing.T) {
		across(t, "e2e-vxlan", "networking: {podSubnet: 10.40.0.0/16, serviceSubnet: 10.41.0.0/20, podNetwork: vxlan}", "1450")
	})
	t.Run("IPv6", func(t *testing.T) { across(t, "e2e-six", "networking: {ipFamily: ipv6}", "1500") })
	t.Run("IPv6VXLAN", func(t *testing.T) {
		across(t, "e2e-six-vxlan", "networking: {podSubnet: 'fd00:1:2::/56', serviceSubnet: 'fd00:3::/110', podNetwork: vxlan}", "1430")
	})
	t.Run("IPv6Cloud", func(t *testing.T) {
		balanced(t, across(t, "e2e-six-clouds", "cloudProvider: docker\nnetworking: {ipFamily: ipv6, podNetwork: cloud}", "1500"))
	})
}

// The Service that across has created gets an address from the cloud, and is reachable there
// from outside of the cluster.
func balanced(t *testing.T, s *space) {
	s.Podium(t, "patch", "service", "front", "-n", s.Namespace, "-p", `{"spec": {"type": "LoadBalancer"}}`)
	docked.Eventually(t, 20*time.Second, "the Service answers at its address", func(ctx context.Context) error {
		svc, err := client.For[*corev1.Service](s.API).In(s.Namespace).Get(ctx, "front")
		if err != nil {
			return err
		}
		if len(svc.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("addresses: %v", svc.Status.LoadBalancer.Ingress)
		}
		_, err = get(ctx, svc.Status.LoadBalancer.Ingress[0].IP, 80)
		return err
	})
}

// across creates a cluster of two nodes and tests all paths between them. mtu is the pods' MTU.
func across(t *testing.T, name, config, mtu string) *space {
	t.Helper()
	config = "apiVersion: config.podium.dev/v1alpha1\nkind: Cluster\nmetadata: {name: " + name + "}\n" +
		"nodes: [{role: control-plane}, {role: worker}]\n" + config
	c := cluster{docked.New(name, t.TempDir())}
	c.create(t, config)
	s := c.space(t)
	nodes := map[string]string{"a": name + "-control-plane", "b": name + "-worker"}
	address := map[string]string{}
	for name, node := range nodes {
		s.Apply(pinned(name, node, "localhost/podium/web:v1", "/web"))
		address[name] = s.Ready(name).Status.PodIP
	}
	s.Apply(`
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {type: NodePort, selector: {app: b}, ports: [{port: 80, targetPort: 8080}]}
`)
	for from, to := range map[string]string{"a": "b", "b": "a"} {
		docked.Eventually(t, 20*time.Second, to+" has answered "+from, func(context.Context) error {
			got, err := s.Exec(from, "/web", "get", "http://"+net.JoinHostPort(address[to], "8080")+"/client")
			if err == nil && got != address[from] {
				err = fmt.Errorf("%s was seen as %s", address[from], got)
			}
			return err
		})
		docked.Eventually(t, 20*time.Second, from+" has found the Service by name", func(context.Context) error {
			got, err := s.Exec(from, "/web", "get", "http://front/")
			if err == nil && got != "b" {
				err = fmt.Errorf("%q answered", got)
			}
			return err
		})
	}
	for _, node := range nodes {
		docked.Eventually(t, 20*time.Second, "the Service's port answers on "+node, func(ctx context.Context) error {
			_, err := get(ctx, s.Address(node), s.NodePort("front"))
			return err
		})
	}
	s.carries(nodes, mtu)
	return s
}

// carries makes pods of two nodes send each other a megabyte by TCP, whose segments are as large
// as the pods' MTU allows: if the path dropped such packets, the first one would never be
// acknowledged.
func (s *space) carries(nodes map[string]string, mtu string) {
	s.T.Helper()
	const size = 1 << 20
	address := map[string]string{}
	for name, node := range nodes {
		s.Apply(pinned("bulk-"+name, node, "localhost/podium/busybox:v1", "sh", "-c",
			fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x > /tmp/bulk && exec httpd -f -p 8080 -h /tmp", size)))
		address[name] = s.Ready("bulk-" + name).Status.PodIP
	}
	for from, to := range map[string]string{"a": "b", "b": "a"} {
		if got, err := s.Exec("bulk-"+from, "cat", "/sys/class/net/eth0/mtu"); got != mtu {
			s.T.Errorf("the MTU of pod %s is %q, want %s: %v", from, got, mtu, err)
		}
		docked.Eventually(s.T, 20*time.Second, to+" sends full packets to "+from, func(context.Context) error {
			got, err := s.Exec(from, "/web", "get", "http://"+net.JoinHostPort(address[to], "8080")+"/bulk")
			if err == nil && len(got) != size {
				err = fmt.Errorf("%d of %d bytes came", len(got), size)
			}
			return err
		})
	}
}
