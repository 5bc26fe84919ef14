package controllers_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/apiserver/registry"
	"podium/pkg/client"
	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// budgetOf returns a disruption budget over the pods of an app.
func budgetOf(app string, change ...func(*policyv1.PodDisruptionBudgetSpec)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	for _, f := range change {
		f(&b.Spec)
	}
	return b
}

func maxUnavailable(text string) func(*policyv1.PodDisruptionBudgetSpec) {
	return func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.Parse(text)) }
}

func minAvailable(text string) func(*policyv1.PodDisruptionBudgetSpec) {
	return func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.Parse(text)) }
}

func (c *cluster) budget(name string) *policyv1.PodDisruptionBudget {
	c.t.Helper()
	b, err := client.For[*policyv1.PodDisruptionBudget](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// counts waits until the status of a budget has these numbers.
func (c *cluster) counts(name string, expected, desired, healthy, allowed int32) {
	c.t.Helper()
	var b *policyv1.PodDisruptionBudget
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b = c.budget(name)
		s := b.Status
		if s.ExpectedPods == expected && s.DesiredHealthy == desired && s.CurrentHealthy == healthy && s.DisruptionsAllowed == allowed && s.ObservedGeneration == b.Generation {
			reason := policyv1.SufficientPodsReason
			if allowed == 0 {
				reason = policyv1.InsufficientPodsReason
			}
			if cond := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition); cond == nil || cond.Reason != reason {
				c.t.Errorf("the conditions are %v, want reason %s", s.Conditions, reason)
			}
			return
		}
	}
	c.t.Fatalf("the status is %+v", b.Status)
}

func (c *cluster) evict(pod string) error {
	return client.For[*corev1.Pod](c.Client).In("default").Post(context.Background(), pod, "eviction",
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod}}, nil)
}

// TestBudgetOfDeployment compares the forms of a budget, and follows evictions.
func TestBudgetOfDeployment(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, budgetOf("web", maxUnavailable("1")))
		c.counts("web", 0, 0, 0, 0)
		create(c, deploymentOf("web", 4, "v1"))
		c.counts("web", 4, 3, 4, 1)
		for _, row := range []struct {
			change                               func(*policyv1.PodDisruptionBudgetSpec)
			expected, desired, healthy, possible int32
		}{
			{maxUnavailable("30%"), 4, 2, 4, 2},
			{minAvailable("3"), 4, 3, 4, 1},
			{minAvailable("60%"), 4, 3, 4, 1},
			{minAvailable("9"), 4, 9, 4, 0},
			{func(*policyv1.PodDisruptionBudgetSpec) {}, 0, 0, 4, 0},
			{maxUnavailable("1"), 4, 3, 4, 1},
		} {
			edit(c, "web", func(b *policyv1.PodDisruptionBudget) {
				b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, nil
				row.change(&b.Spec)
			})
			c.counts("web", row.expected, row.desired, row.healthy, row.possible)
		}
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 })
		c.counts("web", 5, 4, 5, 1)
		c.quiet()

		var pods []string
		for _, p := range c.pods("app=web") {
			pods = append(pods, p.Name)
		}
		if err := c.evict(pods[0]); err != nil {
			t.Fatal(err)
		}
		if err := c.evict(pods[1]); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the second eviction: %v", err)
		}
		c.counts("web", 5, 4, 5, 1)
		if n := len(c.budget("web").Status.DisruptedPods); n != 0 {
			t.Errorf("%d disrupted pods are left in the status", n)
		}
		if err := c.evict(pods[1]); err != nil {
			t.Errorf("after the replacement is ready: %v", err)
		}
		if !c.event("NoPods") {
			t.Error("there is no event")
		}
	})
}

// A drain under a budget evicts all pods of a node and never leaves too few ready ones.
func TestDrainUnderABudget(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 9, "v1"))
		create(c, budgetOf("web", maxUnavailable("1")))
		c.counts("web", 9, 8, 9, 1)
		editNode(c, "node-0", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		onNode := func() []*corev1.Pod {
			return slices.DeleteFunc(c.pods("app=web"), func(p *corev1.Pod) bool { return p.Spec.NodeName != "node-0" || p.DeletionTimestamp != nil })
		}
		c.until(5*time.Minute, "the node is empty", func() bool {
			for _, p := range onNode() {
				if err := c.evict(p.Name); err != nil && !apierrors.IsTooManyRequests(err) {
					t.Errorf("evict %s: %v", p.Name, err)
				}
			}
			if ready, _ := c.readyPods("app=web"); ready < 8 {
				t.Errorf("%d pods are ready", ready)
			}
			return len(onNode()) == 0
		})
		c.counts("web", 9, 8, 9, 1)
		c.quiet()
	})
}

// scalableWidget is a kind with the scale subresource that was defined at run time.
func scalableWidget() *registry.Kind {
	k := widgetKind()
	k.Subresources = []*registry.Subresource{{
		Name: "scale", GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		View: func(obj scheme.Object) (runtime.Object, error) {
			return &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID()},
				Spec:       autoscalingv1.ScaleSpec{Replicas: 10},
			}, nil
		},
		Merge: func(scheme.Object, runtime.Object) error { return nil },
	}}
	return k
}

// podOf creates a pod with the label app=name that owner controls; nil: it has no controller.
func (c *cluster) podOf(name string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: deploymentOf("", 0, "v1").Spec.Template.Spec}
	if owner != nil {
		owner.Controller = new(true)
		p.OwnerReferences = []metav1.OwnerReference{*owner}
		p.Finalizers = []string{"example.com/kept"} // by the garbage collector, although its owner may not exist
	}
	return create(c, p)
}

// A budget that depends on the scale of controllers asks those of any kind, and allows no
// disruption if one has none.
func TestBudgetsAndOtherControllers(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		if err := c.server.AddKind(t.Context(), scalableWidget()); err != nil {
			t.Fatal(err)
		}
		w := c.widget("default", "w")
		c.podOf("widget", &metav1.OwnerReference{APIVersion: "stable.example.com/v1", Kind: "Widget", Name: "w", UID: w.GetUID()})
		create(c, budgetOf("widget", maxUnavailable("95%")))
		c.counts("widget", 10, 0, 1, 1)

		fails := func(name, message string) {
			t.Helper()
			create(c, budgetOf(name, maxUnavailable("1")))
			c.until(time.Minute, "the budget of "+name+" fails", func() bool {
				b := c.budget(name)
				cond := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
				return cond != nil && cond.Reason == policyv1.SyncFailedReason && strings.Contains(cond.Message, message) && b.Status.DisruptionsAllowed == 0
			})
		}
		create(c, daemonSetOf("agent", "v1"))
		c.until(time.Minute, "the daemon set runs", func() bool { return c.runsOn("agent", 1) })
		fails("agent", "daemonsets.apps does not implement the scale subresource")
		c.podOf("other", &metav1.OwnerReference{APIVersion: "other.example.com/v1", Kind: "Other", Name: "o", UID: "o"})
		fails("other", `no matches for kind "Other" in version "other.example.com/v1"`)
		c.podOf("lost", &metav1.OwnerReference{APIVersion: "stable.example.com/v1", Kind: "Widget", Name: "w", UID: "another"})
		fails("lost", `found no controllers for pod "lost"`)
		edit(c, "lost", func(p *corev1.Pod) { p.Finalizers = nil })

		c.podOf("alone", nil)
		create(c, budgetOf("alone", minAvailable("50%")))
		c.counts("alone", 0, 0, 1, 0)
		if !c.event("UnmanagedPods") || !c.event("CalculateExpectedPodCountFailed") {
			t.Error("an event is missing")
		}
		c.quiet()
	})
}

// A pod whose eviction was allowed, and that is not deleted, counts again after two minutes,
// and loses the mark of the eviction.
func TestUnfinishedEviction(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 3, "v1"))
		create(c, budgetOf("web", minAvailable("1")))
		create(c, budgetOf("second", func(s *policyv1.PodDisruptionBudgetSpec) { s.Selector = &metav1.LabelSelector{} }))
		c.counts("web", 3, 1, 3, 2)
		began := time.Now()
		name := c.pods("")[0].Name
		pods, budgets := client.For[*corev1.Pod](c.Client).In("default"), client.For[*policyv1.PodDisruptionBudget](c.Client).In("default")
		c.until(time.Minute, "the eviction stops after its first writes", func() bool {
			b := c.budget("web")
			b.Status.DisruptionsAllowed--
			b.Status.DisruptedPods = map[string]metav1.Time{name: metav1.Now()}
			_, err := budgets.UpdateStatus(context.Background(), b)
			return err == nil
		})
		c.until(time.Minute, "the pod is marked", func() bool {
			p, err := pods.Get(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			p.Status.Conditions = conditions.Set(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: metav1.Now()})
			_, err = pods.UpdateStatus(context.Background(), p)
			return err == nil
		})
		c.counts("web", 3, 1, 2, 1)
		c.counts("web", 3, 1, 3, 2)
		if d := time.Since(began); d < 119*time.Second || d > 125*time.Second {
			t.Errorf("the pod counted again after %s", d)
		}
		c.until(10*time.Second, "the mark is removed", func() bool {
			p, err := pods.Get(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			cond := conditions.Find(p.Status.Conditions, corev1.DisruptionTarget)
			return cond.Status == corev1.ConditionFalse && cond.Reason == ""
		})
		if !c.event("NotDeleted") {
			t.Error("there is no event")
		}
		edit(c, name, func(p *corev1.Pod) { p.Labels["step"] = "2" }) // events at the same instant share a name
		c.until(time.Minute, "two budgets are reported", func() bool { return c.event("MultiplePodDisruptionBudgets") })
		c.quiet()
	})
}
