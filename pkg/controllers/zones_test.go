package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podium/pkg/controllers"
)

// While most of a small zone is lost, its nodes get no NoExecute taint: the network is the
// likely cause. Once all of it is lost, they get it one by one, at the eviction rate.
func TestZonesAreTaintedAtTheirRate(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		metrics := prometheus.NewRegistry()
		c.config = func(cfg *controllers.Config) { cfg.Registry = metrics }
		c.restartControllers()
		add := func(zone string, n int) {
			for i := range n {
				name := fmt.Sprintf("%s-%d", zone, i)
				create(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}})
				c.background(func(ctx context.Context) error { return c.kubelet(ctx, name) })
			}
		}
		count := func(taint string) (n int) {
			for _, node := range all[*corev1.Node](c, corev1.LabelTopologyZone+"=lost") {
				if strings.Contains(taints(node), taint) {
					n++
				}
			}
			return n
		}
		add("lost", 6)
		add("kept", 3)
		c.until(time.Minute, "all nodes are ready", func() bool { return count("NoSchedule") == 0 })
		for i := range 5 {
			c.setDown(fmt.Sprintf("lost-%d", i), true)
		}
		c.until(2*time.Minute, "five nodes are unreachable", func() bool { return count("unreachable:NoSchedule") == 5 })
		early := count("unreachable:NoExecute") // of the nodes that were noticed before they were most of the zone
		time.Sleep(5 * time.Minute)
		if n := count("unreachable:NoExecute"); early > 1 || n != early {
			t.Errorf("%d, later %d nodes of a small unhealthy zone are tainted", early, n)
		}
		c.setDown("lost-5", true)
		c.poll(2*time.Minute, 10*time.Millisecond, "the first taint comes", func() bool { return count("unreachable:NoExecute") > early })
		began := time.Now()
		c.until(2*time.Minute, "all nodes are tainted", func() bool { return count("unreachable:NoExecute") == 6 })
		if d := time.Since(began); d < time.Duration(6-early-1)*10*time.Second {
			t.Errorf("%d nodes were tainted within %s", 6-early, d)
		}
		want := "# HELP node_collector_evictions_total Nodes that got a NoExecute taint because they were not ready\n# TYPE node_collector_evictions_total counter\n" +
			"node_collector_evictions_total{zone=\":\x00:kept\"} 0\nnode_collector_evictions_total{zone=\":\x00:lost\"} 6\n"
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "node_collector_evictions_total"); err != nil {
			t.Error(err)
		}
	})
}

// A node that is deleted and registers again may be in another zone, and its endpoints too.
func TestEndpointsFollowTheZoneOfTheirNode(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		node := func(zone string) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		}
		zone := func(want string) {
			t.Helper()
			c.until(30*time.Second, fmt.Sprintf("the endpoint is in zone %q", want), func() bool {
				for _, es := range all[*discoveryv1.EndpointSlice](c, discoveryv1.LabelServiceName+"=web") {
					for _, e := range es.Endpoints {
						return ptr.Deref(e.Zone, "") == want
					}
				}
				return false
			})
		}
		create(c, node("a"))
		c.background(func(ctx context.Context) error { return c.kubelet(ctx, "node") })
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}})
		create(c, deploymentOf("web", 1, "v1"))
		zone("a")
		remove[*corev1.Node](c, "node", metav1.DeletePropagationBackground)
		zone("")
		create(c, node("b"))
		zone("b")
	})
}

func TestNodesThatComeAndGoAreTold(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		told := func() (messages []string) {
			for _, e := range c.events() {
				if e.Reason == "RegisteredNode" || e.Reason == "RemovingNode" {
					messages = append(messages, e.Message)
				}
			}
			return messages
		}
		registered, removing := "Node node-0 event: Registered Node node-0 in Controller", "Node node-0 event: Removing Node node-0 from Controller"
		if diff := cmp.Diff([]string{registered}, told()); diff != "" {
			t.Errorf("the node came (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Minute)
		c.restartControllers()
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{registered}, told()); diff != "" {
			t.Errorf("the controllers restarted (-want +got):\n%s", diff)
		}
		remove[*corev1.Node](c, "node-0", metav1.DeletePropagationBackground)
		if diff := cmp.Diff([]string{registered, removing}, told()); diff != "" {
			t.Errorf("the node went (-want +got):\n%s", diff)
		}
	})
}

// The pods of a node that is out of service are removed without its kubelet, and replaced.
func TestNodeOutOfService(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 4, "v1"))
		c.until(time.Minute, "it is out", func() bool { return c.rolledOut("web") })
		c.setDown("node-0", true)
		c.until(time.Minute, "the node is unreachable", func() bool { return strings.Contains(taints(c.node("node-0")), "unreachable:NoExecute") })
		time.Sleep(time.Minute)
		on := func() (n int) {
			for _, p := range c.pods("app=web") {
				if p.Spec.NodeName == "node-0" {
					n++
				}
			}
			return n
		}
		if on() == 0 {
			t.Error("the pods are gone before their patience is over")
		}
		editNode(c, "node-0", func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		})
		c.until(time.Minute, "its pods are gone", func() bool { return on() == 0 })
		c.until(time.Minute, "they are replaced", func() bool { return c.rolledOut("web") })
		c.quiet()
	})
}
