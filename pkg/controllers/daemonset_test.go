package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/client"
)

// daemonSetOf returns a daemon set of pods with one container of this image.
func daemonSetOf(name, image string, change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	d := deploymentOf(name, 0, image)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	for _, f := range change {
		f(ds)
	}
	return ds
}

func daemonImage(image string) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = image }
}

func rollingDaemon(surge, unavailable intstr.IntOrString) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) {
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type:          appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &surge, MaxUnavailable: &unavailable},
		}
	}
}

func (c *cluster) daemonSet(name string) *appsv1.DaemonSet {
	c.t.Helper()
	ds, err := client.For[*appsv1.DaemonSet](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return ds
}

// runsOn reports whether a daemon set has exactly one pod, available and of its current
// template, on each of n nodes, and none elsewhere.
func (c *cluster) runsOn(name string, n int32) bool {
	ds := c.daemonSet(name)
	want := appsv1.DaemonSetStatus{
		DesiredNumberScheduled: n, CurrentNumberScheduled: n, NumberReady: n, NumberAvailable: n, UpdatedNumberScheduled: n,
		ObservedGeneration: ds.Generation, CollisionCount: ds.Status.CollisionCount,
	}
	nodes := map[string]bool{}
	pods := c.pods("app=" + name)
	for _, p := range pods {
		nodes[p.Spec.NodeName] = true
	}
	return fmt.Sprint(ds.Status) == fmt.Sprint(want) && len(pods) == int(n) && len(nodes) == int(n)
}

// revisionsInOrder returns all revisions, oldest first.
func (c *cluster) revisionsInOrder() []*appsv1.ControllerRevision {
	all := all[*appsv1.ControllerRevision](c, "")
	slices.SortFunc(all, func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return all
}

// event reports whether an event with this reason was recorded.
func (c *cluster) event(reason string) bool {
	return slices.ContainsFunc(c.events(), func(e *corev1.Event) bool { return e.Reason == reason })
}

// TestDaemonSet follows a daemon set through changes of nodes, pods and its node selector.
func TestDaemonSet(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1"))
		c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", 3) })
		for _, p := range c.pods("") {
			names := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values
			if !slices.Equal(names, []string{p.Spec.NodeName}) || p.Labels["pod-template-generation"] != "1" || p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == "" {
				t.Errorf("pod on %s: affinity to %v, labels %v", p.Spec.NodeName, names, p.Labels)
			}
		}
		c.addNode("node-new")
		c.until(time.Minute, "a new node gets a pod", func() bool { return c.runsOn("agent", 4) })
		remove[*corev1.Pod](c, c.pods("")[0].Name, metav1.DeletePropagationBackground)
		c.until(time.Minute, "a deleted pod comes back", func() bool { return len(c.pods("")) == 4 && c.runsOn("agent", 4) })
		c.quiet()

		edit(c, "agent", func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.NodeSelector = map[string]string{"colour": "blue"}
		})
		c.until(time.Minute, "no node is blue", func() bool { return c.runsOn("agent", 0) })
		colour(c, "node-1", "blue")
		c.until(time.Minute, "one is", func() bool { return c.runsOn("agent", 1) })
		colour(c, "node-1", "green")
		c.until(time.Minute, "it is not any more", func() bool { return c.runsOn("agent", 0) })
		edit(c, "agent", func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.NodeSelector = map[string]string{"colour": "green"}
		})
		c.until(time.Minute, "the template follows", func() bool { return c.runsOn("agent", 1) })
		if !c.event("SuccessfulCreate") || !c.event("SuccessfulDelete") {
			t.Error("an event is missing")
		}
		if n := len(c.revisionsInOrder()); n != 3 {
			t.Errorf("%d revisions, want 3", n)
		}
		c.quiet()
		remove[*appsv1.DaemonSet](c, "agent", metav1.DeletePropagationForeground)
		c.until(time.Minute, "nothing is left", func() bool { return len(c.pods(""))+len(c.revisionsInOrder()) == 0 })
	})
}

func colour(c *cluster, node, value string) {
	editNode(c, node, func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "colour", value) })
}

func editNode(c *cluster, name string, change func(*corev1.Node)) {
	c.t.Helper()
	nodes := client.For[*corev1.Node](c.Client)
	c.until(time.Minute, "the node is changed", func() bool {
		n, err := nodes.Get(context.Background(), name)
		if err != nil {
			c.t.Fatal(err)
		}
		change(n)
		_, err = nodes.Update(context.Background(), n)
		return err == nil
	})
}

// A taint of effect NoSchedule keeps new pods away and leaves a running one; one of effect
// NoExecute removes it.
func TestDaemonSetFollowsTaints(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1"))
		c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", 2) })
		taint := func(effect corev1.TaintEffect) {
			editNode(c, "node-0", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: effect}}
			})
		}
		taint(corev1.TaintEffectNoSchedule)
		c.until(time.Minute, "the pod is misscheduled", func() bool {
			s := c.daemonSet("agent").Status
			return s.NumberMisscheduled == 1 && s.DesiredNumberScheduled == 1 && s.NumberReady == 1 && len(c.pods("")) == 2
		})
		c.quiet()
		taint(corev1.TaintEffectNoExecute)
		c.until(time.Minute, "the pod is gone", func() bool { return c.runsOn("agent", 1) })
		editNode(c, "node-0", func(n *corev1.Node) { n.Spec.Taints = nil; n.Spec.Unschedulable = true })
		c.until(time.Minute, "a cordoned node is eligible", func() bool { return c.runsOn("agent", 2) })
	})
}

// failPod sets a pod to Failed, as a kubelet does that refuses it.
func (c *cluster) failPod(name string) {
	pods := client.For[*corev1.Pod](c.Client).In("default")
	c.until(time.Minute, "pod "+name+" fails", func() bool {
		p, err := pods.Get(context.Background(), name)
		if err != nil {
			c.t.Fatal(err)
		}
		p.Status.Phase = corev1.PodFailed
		_, err = pods.UpdateStatus(context.Background(), p)
		return err == nil
	})
}

// A failed pod is replaced, at once the first time and later with back-off.
func TestFailedDaemonPodsAreReplaced(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1"))
		var took []time.Duration
		for range 5 {
			c.until(time.Minute, "the node has a pod", func() bool { return c.runsOn("agent", 1) })
			name := c.pods("")[0].Name
			c.failPod(name)
			began := time.Now()
			c.until(time.Minute, "it is deleted", func() bool {
				return !slices.ContainsFunc(c.pods(""), func(p *corev1.Pod) bool { return p.Name == name && p.DeletionTimestamp == nil })
			})
			took = append(took, time.Since(began))
		}
		if took[0] > 500*time.Millisecond || took[4] < 4*time.Second {
			t.Errorf("the pods were deleted after %v", took)
		}
		if !c.event("FailedDaemonPod") {
			t.Error("there is no event")
		}
		c.quiet()
	})
}

// TestDaemonSetRollout updates with both kinds of limits and watches that they hold.
func TestDaemonSetRollout(t *testing.T) {
	const nodes = 6
	for name, row := range map[string]struct {
		change            func(*appsv1.DaemonSet)
		available, atMost int // pods at any instant
	}{
		"OneUnavailable":  {func(*appsv1.DaemonSet) {}, nodes - 1, nodes},
		"HalfUnavailable": {rollingDaemon(intstr.FromInt32(0), intstr.FromString("50%")), nodes / 2, nodes},
		"OneSurge":        {rollingDaemon(intstr.FromInt32(1), intstr.FromInt32(0)), nodes, nodes + 1},
		"HalfSurge":       {rollingDaemon(intstr.FromString("50%"), intstr.FromInt32(0)), nodes, nodes + nodes/2},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nodes, func(t *testing.T, c *cluster) {
				create(c, daemonSetOf("agent", "v1", row.change, func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 2 }))
				c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", nodes) })
				edit(c, "agent", daemonImage("v2"))
				most := 0
				c.until(5*time.Minute, "the update is complete", func() bool {
					running, existing := c.readyPods("app=agent")
					if running < row.available {
						t.Errorf("only %d pods are ready", running)
					}
					most = max(most, existing)
					return c.runsOn("agent", nodes) && images(c.pods("")) == fmt.Sprintf("v2:%d", nodes)
				})
				if most > row.atMost {
					t.Errorf("there were %d pods", most)
				}
				c.quiet()
			})
		})
	}
}

// A rollback of an update that is stuck leaves the pods alone that were never updated.
func TestDaemonSetRollbackKeepsPods(t *testing.T) {
	inCluster(t, 4, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1"))
		c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", 4) })
		edit(c, "agent", daemonImage("broken"))
		c.until(time.Minute, "the update is stuck", func() bool {
			return images(c.pods("")) == "broken:1 v1:3" && c.daemonSet("agent").Status.NumberUnavailable == 1
		})
		c.quiet()
		kept := map[string]bool{}
		for _, p := range c.pods("") {
			kept[p.Name] = !broken(p)
		}
		edit(c, "agent", daemonImage("v1"))
		c.until(time.Minute, "it is rolled back", func() bool { return c.runsOn("agent", 4) && images(c.pods("")) == "v1:4" })
		n := 0
		for _, p := range c.pods("") {
			if kept[p.Name] {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d pods were kept, want 3", n)
		}
		if r := c.revisionsInOrder(); len(r) != 2 || r[0].Revision != 2 || r[1].Revision != 3 {
			t.Errorf("the revisions are %v", r)
		}
	})
}

// With the strategy OnDelete a pod gets the new template when it is deleted.
func TestDaemonSetOnDelete(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1", func(ds *appsv1.DaemonSet) {
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}))
		c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", 3) })
		edit(c, "agent", daemonImage("v2"))
		c.quiet()
		if got := images(c.pods("")); got != "v1:3" {
			t.Errorf("before a delete the pods are %s", got)
		}
		remove[*corev1.Pod](c, c.pods("")[0].Name, metav1.DeletePropagationBackground)
		c.until(time.Minute, "one pod is new", func() bool {
			return images(c.pods("")) == "v1:2 v2:1" && c.daemonSet("agent").Status.UpdatedNumberScheduled == 1
		})
	})
}

// A daemon set adopts matching pods on its nodes, releases those that no longer match, and
// another one takes over what an orphaning delete leaves.
func TestDaemonSetOwnsMatchingPods(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1"))
		c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", 2) })
		before := c.pods("")
		remove[*appsv1.DaemonSet](c, "agent", metav1.DeletePropagationOrphan)
		c.until(time.Minute, "it is gone", func() bool { return !exists[*appsv1.DaemonSet](c, "default", "agent") })
		create(c, daemonSetOf("agent", "v1"))
		c.until(time.Minute, "its successor has adopted the pods", func() bool {
			return c.runsOn("agent", 2) && len(c.pods("")[0].OwnerReferences) == 1 && len(c.pods("")[1].OwnerReferences) == 1
		})
		if now := c.pods(""); now[0].UID != before[0].UID || now[1].UID != before[1].UID || len(c.revisionsInOrder()) != 1 {
			t.Errorf("the pods were replaced, or the revision: %v", c.revisionsInOrder())
		}
		edit(c, before[0].Name, func(p *corev1.Pod) { p.Labels["app"] = "other" })
		c.until(time.Minute, "a released pod is replaced", func() bool { return c.runsOn("agent", 2) && len(c.pods("")) == 3 })
		c.quiet()
	})
}

// TestDaemonSetOnManyNodes rolls an update over 100 nodes.
func TestDaemonSetOnManyNodes(t *testing.T) {
	inCluster(t, 100, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1", rollingDaemon(intstr.FromInt32(0), intstr.FromString("20%"))))
		c.until(time.Minute, "each node has a pod", func() bool { return c.runsOn("agent", 100) })
		before := c.writes.Load()
		edit(c, "agent", daemonImage("v2"))
		c.until(5*time.Minute, "the update is complete", func() bool { return c.runsOn("agent", 100) && images(c.pods("")) == "v2:100" })
		t.Logf("%d writes", c.writes.Load()-before)
		c.quiet()
	})
}
