package cloud

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

func taints(n *corev1.Node) map[string]bool {
	out := map[string]bool{}
	for _, t := range n.Spec.Taints {
		out[t.Key] = true
	}
	return out
}

// Nodes have the metadata of their machines, and their zones from the containers' labels.
func TestNodesKnowTheirMachines(t *testing.T) {
	list, err := client.For[*corev1.Node](the.Client(t)).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]string{plane: "", worker1: "east", worker2: "west"}
	if len(list.Items) != len(zones) {
		t.Errorf("%d nodes", len(list.Items))
	}
	for _, n := range list.Items {
		if want := "docker://" + clusterName + "/" + n.Name; n.Spec.ProviderID != want {
			t.Errorf("%s: provider ID %q, want %s", n.Name, n.Spec.ProviderID, want)
		}
		if got := n.Labels[corev1.LabelTopologyZone]; got != zones[n.Name] {
			t.Errorf("%s is in zone %q, want %q", n.Name, got, zones[n.Name])
		}
		if taints(n)["node.cloudprovider.kubernetes.io/uninitialized"] {
			t.Errorf("%s waits to be met", n.Name)
		}
		if out, err := docked.Docker(t.Context(), "exec", n.Name, "ip", "-4", "route", "show", "proto", "78"); err != nil || strings.Count(out, " via ") != len(zones)-1 {
			t.Errorf("%s: the provider's routes are %q, %v: want one to each other node's pods", n.Name, out, err)
		}
	}
}

// TestLostMachines is the last test of the package, because the workers do not come back. The
// Node of a removed container is deleted; that of a stopped one is tainted. Nodes become
// unreachable sooner than by default.
func TestLostMachines(t *testing.T) {
	nodes := client.For[*corev1.Node](the.Client(t))
	do := func(args ...string) {
		t.Helper()
		if _, err := docked.Docker(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	do("exec", plane, "sh", "-c", "echo 'nodeMonitorGracePeriod: 15s' >>/etc/podium/kube-controller-manager.yaml && systemctl restart kube-controller-manager")
	do("rm", "--force", "--volumes", worker2)
	do("stop", "--time", "5", worker1)
	docked.Eventually(t, time.Minute, "the Node of the container that was removed is gone", func(ctx context.Context) error {
		n, err := nodes.Get(ctx, worker2)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is there, tainted %v", n.Spec.Taints)
		}
		return err
	})
	docked.Eventually(t, time.Minute, "the Node of the container that is stopped is tainted", func(ctx context.Context) error {
		n, err := nodes.Get(ctx, worker1)
		if err == nil && !taints(n)["node.cloudprovider.kubernetes.io/shutdown"] {
			err = fmt.Errorf("taints: %v", n.Spec.Taints)
		}
		return err
	})
	the.Podium(t, "cluster", "node", "start", worker1)
	docked.Eventually(t, time.Minute, "the taint goes when the node is ready again", func(ctx context.Context) error {
		n, err := nodes.Get(ctx, worker1)
		if err == nil && taints(n)["node.cloudprovider.kubernetes.io/shutdown"] {
			err = fmt.Errorf("taints: %v", n.Spec.Taints)
		}
		return err
	})
}
