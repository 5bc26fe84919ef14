package multinode

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// On a cluster whose nodes are joined by a VXLAN pods reach each other across
// nodes without NAT, also with packets as big as a pod can send; a Service's
// port answers on every node and its name in every pod.
func TestPodsReachEachOtherByVXLAN(t *testing.T) {
	const config = `
apiVersion: config.podium.dev/v1alpha1
kind: Cluster
metadata: {name: e2e-vxlan}
nodes: [{role: control-plane}, {role: worker}]
networking: {podSubnet: 10.40.0.0/16, serviceSubnet: 10.41.0.0/20, podNetwork: vxlan}
`
	c := &cluster{root: the.root, name: "e2e-vxlan", kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	t.Log(c.feed(t, config, "cluster", "create", "--config", "-", "--wait", "3m", "-v"))
	traces, err := c.traces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.keepLogs(context.Background())
		}
		if _, err := c.try(context.Background(), "", "cluster", "delete", c.name); err != nil {
			t.Error(err)
		}
		if err := traces.left(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := c.space(t)
	nodes := map[string]string{"a": "e2e-vxlan-control-plane", "b": "e2e-vxlan-worker"}
	address := map[string]string{}
	for name, node := range nodes {
		s.apply(pinned(name, node, "localhost/podium/web:v1", "/web"))
		address[name] = s.ready(name).Status.PodIP
	}
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {type: NodePort, selector: {app: b}, ports: [{port: 80, targetPort: 8080}]}
`)
	for from, to := range map[string]string{"a": "b", "b": "a"} {
		eventually(t, 20*time.Second, to+" has answered "+from, func(context.Context) error {
			got, err := s.exec(from, "/web", "get", "http://"+address[to]+":8080/")
			if err == nil && got != to {
				err = fmt.Errorf("%q answered", got)
			}
			return err
		})
		eventually(t, 20*time.Second, from+" has found the Service by name", func(context.Context) error {
			got, err := s.exec(from, "/web", "get", "http://front/")
			if err == nil && got != "b" {
				err = fmt.Errorf("%q answered", got)
			}
			return err
		})
	}
	for _, node := range nodes {
		eventually(t, 20*time.Second, "the Service's port answers on "+node, func(ctx context.Context) error {
			_, err := get(ctx, s.address(node), s.nodePort("front"))
			return err
		})
		// The bridge that the CNI plugin made carries what fits into the tunnel.
		out, err := docker(t.Context(), "exec", node, "cat", "/sys/class/net/podium0/mtu", "/sys/class/net/podium-vxlan/mtu")
		if err != nil || out != "1450\n1450" {
			t.Errorf("%s: the MTUs of bridge and tunnel are %q, %v", node, out, err)
		}
	}
}
