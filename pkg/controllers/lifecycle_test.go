package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// exists reports whether an object of this name exists.
func exists[T scheme.Object](c *cluster, namespace, name string) bool {
	_, err := client.For[T](c.Client).In(namespace).Get(context.Background(), name)
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
	return err == nil
}

func TestDeletePolicies(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		for _, name := range []string{"bg", "fg", "orphan"} {
			create(c, deploymentOf(name, 5, "v1"))
			c.until(time.Minute, name+" is out", func() bool { return c.rolledOut(name) })
		}

		remove[*appsv1.Deployment](c, "bg", metav1.DeletePropagationBackground)
		if exists[*appsv1.Deployment](c, "default", "bg") {
			t.Error("in the background the owner goes first")
		}
		c.until(time.Minute, "everything of bg is gone", func() bool { return len(c.pods("app=bg")) == 0 && len(c.sets()) == 2 })

		remove[*appsv1.Deployment](c, "fg", metav1.DeletePropagationForeground)
		c.until(time.Minute, "fg is gone", func() bool {
			here := exists[*appsv1.Deployment](c, "default", "fg")
			if !here && (len(c.pods("app=fg")) > 0 || len(c.sets()) > 1) {
				t.Fatal("in the foreground the owner goes last")
			}
			return !here
		})

		remove[*appsv1.Deployment](c, "orphan", metav1.DeletePropagationOrphan)
		c.until(time.Minute, "orphan is gone", func() bool { return !exists[*appsv1.Deployment](c, "default", "orphan") })
		time.Sleep(time.Minute)
		sets := c.sets()
		if len(sets) != 1 || len(sets[0].OwnerReferences) != 0 {
			t.Fatalf("the replica set stays and forgets its owner; there are %v", sets)
		}
		if ready, total := c.readyPods("app=orphan"); ready != 5 || total != 5 {
			t.Errorf("%d of %d pods are ready, want 5", ready, total)
		}
		remove[*appsv1.ReplicaSet](c, sets[0].Name, metav1.DeletePropagationOrphan)
		c.until(time.Minute, "its set is gone", func() bool { return len(c.sets()) == 0 })
		time.Sleep(time.Minute)
		for _, p := range c.pods("") {
			if len(p.OwnerReferences) != 0 || p.DeletionTimestamp != nil {
				t.Errorf("pod %s: owners %v, deleted %v", p.Name, p.OwnerReferences, p.DeletionTimestamp)
			}
		}
		c.quiet()
	})
}

func TestNamespaceDeletion(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		in := metav1.ObjectMeta{Namespace: "shop"}
		named := func(name string) metav1.ObjectMeta { m := in; m.Name = name; return m }
		d := deploymentOf("web", 3, "v1")
		d.Namespace = "shop"
		create(c, d)
		create(c, &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}})
		held := &corev1.Pod{ObjectMeta: named("held"), Spec: d.Spec.Template.Spec}
		held.Finalizers = []string{"example.com/hold"}
		create(c, held)
		create(c, &corev1.ConfigMap{ObjectMeta: named("config")})
		c.until(time.Minute, "the pods run", func() bool { ready, _ := c.readyPods(""); return ready == 4 })
		for _, ns := range []string{"shop", "default", "kube-system"} {
			if !exists[*corev1.ServiceAccount](c, ns, "default") || !exists[*corev1.ConfigMap](c, ns, "kube-root-ca.crt") {
				t.Errorf("namespace %s lacks its service account or its root CA", ns)
			}
		}

		remove[*corev1.Namespace](c, "shop", metav1.DeletePropagationBackground)
		time.Sleep(time.Minute)
		if !exists[*corev1.ConfigMap](c, "shop", "config") {
			t.Error("while a pod is held, what it may use is kept")
		}
		ns, err := client.For[*corev1.Namespace](c.Client).Get(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		messages := map[corev1.NamespaceConditionType]string{}
		for _, cond := range ns.Status.Conditions {
			if cond.Status == corev1.ConditionTrue {
				messages[cond.Type] = cond.Message
			}
		}
		want := fmt.Sprint(map[corev1.NamespaceConditionType]string{
			"NamespaceContentRemaining":    "Some resources are remaining: pods. has 1 resource instances",
			"NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
		})
		if got := fmt.Sprint(messages); got != want {
			t.Errorf("conditions\n got %s\nwant %s", got, want)
		}
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := client.For[*corev1.Pod](c.Client).In("shop").Patch(t.Context(), "held", types.MergePatchType, patch); err != nil {
			t.Fatal(err)
		}
		c.until(time.Minute, "the namespace is gone", func() bool { return !exists[*corev1.Namespace](c, "", "shop") })
		create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		time.Sleep(10 * time.Second)
		if n := len(c.pods("")); n != 0 || exists[*corev1.Service](c, "shop", "web") || exists[*corev1.ConfigMap](c, "shop", "config") {
			t.Error("something of the old namespace is in the new one")
		}
		c.quiet()
	})
}

func TestRootCAIsRestored(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		whole := func() bool {
			m, err := client.For[*corev1.ConfigMap](c.Client).In("default").Get(t.Context(), "kube-root-ca.crt")
			return err == nil && len(m.Data) == 1 && m.Data["ca.crt"] == "a certificate"
		}
		c.until(time.Minute, "it is there", whole)
		edit(c, "kube-root-ca.crt", func(m *corev1.ConfigMap) { m.Data = map[string]string{"ca.crt": "no", "x": "y"} })
		c.until(time.Minute, "it is restored", whole)
		remove[*corev1.ConfigMap](c, "kube-root-ca.crt", metav1.DeletePropagationBackground)
		c.until(time.Minute, "it is made again", whole)
		remove[*corev1.ServiceAccount](c, "default", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the account is made again", func() bool { return exists[*corev1.ServiceAccount](c, "default", "default") })
	})
}

func (c *cluster) node(name string) *corev1.Node {
	n, err := client.For[*corev1.Node](c.Client).Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func taints(n *corev1.Node) string {
	var out []string
	for _, t := range n.Spec.Taints {
		out = append(out, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestNodeDownAndBack(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}})
		c.until(time.Minute, "all nodes take pods", func() bool {
			return taints(c.node("node-0"))+taints(c.node("node-1"))+taints(c.node("node-2")) == ""
		})
		create(c, deploymentOf("web", 6, "v1"))
		c.until(time.Minute, "it is out", func() bool { return c.rolledOut("web") && c.endpoints("web") == 6 })
		cidrs := map[string]bool{}
		for _, n := range all[*corev1.Node](c, "") {
			cidrs[n.Spec.PodCIDR] = true
			if len(n.Spec.PodCIDRs) != 1 || n.Spec.PodCIDRs[0] != n.Spec.PodCIDR {
				t.Errorf("podCIDRs %v", n.Spec.PodCIDRs)
			}
		}
		if !cidrs["10.244.0.0/24"] || !cidrs["10.244.1.0/24"] || !cidrs["10.244.2.0/24"] {
			t.Errorf("pod CIDRs %v", cidrs)
		}

		c.setDown("node-0", true)
		time.Sleep(30 * time.Second)
		if got := taints(c.node("node-0")); got != "" {
			t.Fatalf("silent for less than 40 s, and tainted %s", got)
		}
		c.until(25*time.Second, "the node is unreachable", func() bool {
			return taints(c.node("node-0")) == "unreachable:NoExecute unreachable:NoSchedule"
		})
		for _, cond := range c.node("node-0").Status.Conditions {
			if cond.Status != corev1.ConditionUnknown || cond.Reason != "NodeStatusUnknown" || cond.Message != "Kubelet stopped posting node status." {
				t.Errorf("condition %+v", cond)
			}
		}
		c.until(10*time.Second, "its pods are out of service", func() bool { return c.endpoints("web") == 4 })
		time.Sleep(4 * time.Minute)
		if _, total := c.readyPods("app=web"); total != 6 {
			t.Errorf("pods are evicted before their 300 s of patience are over: %d", total)
		}
		c.until(2*time.Minute, "they are replaced", func() bool { ready, _ := c.readyPods("app=web"); return ready == 6 && c.endpoints("web") == 6 })

		c.setDown("node-0", false)
		c.until(time.Minute, "the node is back", func() bool { return taints(c.node("node-0")) == "" })
		c.until(time.Minute, "its old pods are gone", func() bool { return len(c.pods("app=web")) == 6 })
		c.quiet()

		c.setDown("node-1", true)
		time.Sleep(time.Minute)
		c.setDown("node-1", false)
		c.until(time.Minute, "back in time, its pods serve again", func() bool { return c.endpoints("web") == 6 && taints(c.node("node-1")) == "" })
		c.quiet()
	})
}

func TestNoEvictionWhenAllNodesAreUnreachable(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		d := deploymentOf("web", 6, "v1")
		seconds := int64(0) // evicted pods are deleted at once
		for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
			d.Spec.Template.Spec.Tolerations = append(d.Spec.Template.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
		create(c, d)
		c.until(time.Minute, "it is out", func() bool { return c.rolledOut("web") })
		before := map[types.UID]bool{}
		for _, p := range c.pods("") {
			before[p.UID] = true
		}
		for i := range 3 {
			c.setDown(fmt.Sprintf("node-%d", i), true)
		}
		time.Sleep(10 * time.Minute)
		for i := range 3 { // they recover one after the other
			c.setDown(fmt.Sprintf("node-%d", i), false)
			time.Sleep(15 * time.Second)
		}
		c.until(2*time.Minute, "all is well again", func() bool { ready, _ := c.readyPods("app=web"); return ready == 6 })
		for _, p := range c.pods("") {
			if !before[p.UID] {
				t.Errorf("pod %s is new: an outage of everything is nobody's fault", p.Name)
			}
		}
		c.quiet()
	})
}

func TestNoExecuteTaint(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		pod := func(name string, seconds *int64) *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: deploymentOf("x", 1, "v1").Spec.Template.Spec}
			if seconds == nil || *seconds > 0 {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "out", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}}
			}
			return p
		}
		create(c, pod("at-once", new(int64(0))))
		create(c, pod("later", new(int64(30))))
		create(c, pod("much-later", new(int64(300))))
		create(c, pod("never", nil))
		c.until(time.Minute, "they run", func() bool { ready, _ := c.readyPods(""); return ready == 4 })
		here := func() string {
			var names []string
			for _, p := range c.pods("") {
				names = append(names, p.Name)
			}
			return strings.Join(names, " ")
		}
		set := func(taints ...corev1.Taint) {
			patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.For[*corev1.Node](c.Client).Patch(t.Context(), "node-0", types.MergePatchType, patch); err != nil {
				t.Fatal(err)
			}
		}
		set(corev1.Taint{Key: "out", Effect: corev1.TaintEffectNoExecute})
		c.until(10*time.Second, "one goes at once", func() bool { return here() == "later much-later never" })
		time.Sleep(10 * time.Second)
		if here() != "later much-later never" {
			t.Errorf("too early: %s", here())
		}
		c.until(30*time.Second, "one goes later", func() bool { return here() == "much-later never" })
		set()
		time.Sleep(10 * time.Minute)
		if here() != "much-later never" {
			t.Errorf("the taint is gone, nobody has to go any more: %s", here())
		}
		told := map[string]bool{}
		for _, e := range c.events() {
			if e.Reason == "TaintManagerEviction" {
				told[e.Message] = true
			}
		}
		want := map[string]bool{
			"Marking for deletion Pod default/at-once": true, "Marking for deletion Pod default/later": true,
			"Cancelling deletion of Pod default/much-later": true,
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		c.quiet()
	})
}

func TestPodsOfDeletedNode(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 4, "v1"))
		c.until(time.Minute, "it is out", func() bool { return c.rolledOut("web") })
		c.setDown("node-0", true)
		remove[*corev1.Node](c, "node-0", metav1.DeletePropagationBackground)
		c.until(3*time.Minute, "its pods are replaced", func() bool {
			for _, p := range c.pods("") {
				if p.Spec.NodeName == "node-0" {
					return false
				}
			}
			return c.rolledOut("web")
		})
		c.quiet()
	})
}

func TestCordon(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		c.until(time.Minute, "the node is ready", func() bool { return len(c.node("node-0").Status.Conditions) > 0 })
		patch := func(unschedulable string) {
			if _, err := client.For[*corev1.Node](c.Client).Patch(t.Context(), "node-0", types.MergePatchType, []byte(`{"spec":{"unschedulable":`+unschedulable+`}}`)); err != nil {
				t.Fatal(err)
			}
		}
		patch("true")
		c.until(time.Minute, "it has its taint", func() bool { return taints(c.node("node-0")) == "unschedulable:NoSchedule" })
		patch("null")
		c.until(time.Minute, "it has none", func() bool { return taints(c.node("node-0")) == "" })
	})
}

// Endpoints that users write for a service without a selector are mirrored to slices.
func TestEndpointsMadeByHandAreMirrored(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		ports := []corev1.EndpointPort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}}
		byHand := func(name string, ips ...string) *corev1.Endpoints {
			e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Subsets: []corev1.EndpointSubset{{Ports: ports}}}
			for _, ip := range ips {
				e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: ip})
			}
			return e
		}
		create(c, byHand("db", "192.0.2.1", "192.0.2.2"))
		time.Sleep(time.Minute)
		if n := c.slices("db"); n != 0 {
			t.Fatalf("%d slices of no service", n)
		}
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}}})
		mirrored := func() string {
			var out []string
			for _, es := range all[*discoveryv1.EndpointSlice](c, discoveryv1.LabelServiceName+"=db") {
				for _, e := range es.Endpoints {
					out = append(out, e.Addresses...)
				}
			}
			return strings.Join(out, " ")
		}
		c.until(time.Minute, "the slice has both", func() bool { return mirrored() == "192.0.2.1 192.0.2.2" })
		c.quiet()
		edit(c, "db", func(e *corev1.Endpoints) { e.Subsets[0].Addresses = e.Subsets[0].Addresses[1:] })
		c.until(time.Minute, "the slice follows", func() bool { return mirrored() == "192.0.2.2" && c.slices("db") == 1 })
		c.quiet()
		edit(c, "db", func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} })
		c.until(time.Minute, "who does not want it has none", func() bool { return c.slices("db") == 0 })
		edit(c, "db", func(e *corev1.Endpoints) { e.Labels = nil })
		c.until(time.Minute, "there it is again", func() bool { return c.slices("db") == 1 })
		edit(c, "db", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "db"} })
		c.until(time.Minute, "with a selector the slice is that of the pods", func() bool { return c.slices("db") == 1 && mirrored() == "" })
		c.quiet()
		remove[*corev1.Service](c, "db", metav1.DeletePropagationBackground)
		c.until(time.Minute, "nothing is left", func() bool { return c.slices("db") == 0 })
		c.quiet()
	})
}

func TestEndpoints(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "a"}}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		}})
		text := func() string {
			e, err := client.For[*corev1.Endpoints](c.Client).In("default").Get(t.Context(), "web")
			if err != nil {
				return err.Error()
			}
			out := fmt.Sprint(e.Labels)
			for _, s := range e.Subsets {
				out += fmt.Sprintf(" %d ready, %d not, port %s %d", len(s.Addresses), len(s.NotReadyAddresses), s.Ports[0].Name, s.Ports[0].Port)
			}
			return out
		}
		labels := "map[endpoints.kubernetes.io/managed-by:endpoint-controller team:a]"
		c.until(time.Minute, "a service without pods has empty endpoints", func() bool { return text() == labels && c.slices("web") == 1 })
		create(c, deploymentOf("web", 3, "v1"))
		c.until(time.Minute, "the pods are there", func() bool { return text() == labels+" 3 ready, 0 not, port http 8080" && c.endpoints("web") == 3 })
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 0 })
		c.until(time.Minute, "the pods are gone", func() bool { return text() == labels && c.endpoints("web") == 0 && c.slices("web") == 1 })
		c.quiet()
		remove[*corev1.Service](c, "web", metav1.DeletePropagationBackground)
		c.until(time.Minute, "everything of the service is gone", func() bool { return strings.Contains(text(), "not found") && c.slices("web") == 0 })
		c.quiet()
	})
}
