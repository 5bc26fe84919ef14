package conformance

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var preemptionRows = []testcase{
	{id: "sched-preemption-basic", test: preemptsLowest, serial: true},
	{id: "sched-preemption-critical", test: preemptsForCritical, serial: true},
	{id: "sched-preemption-disruption-condition", test: preemptedPodHasCondition, serial: true},
	{id: "sched-preemption-replicasets", test: preemptsReplicaSets, serial: true},
}

// scarce is the extended resource that the pods of these rows compete for.
const scarce = corev1.ResourceName("example.com/scarce")

// rareNode gives a node an amount of the scarce resource until the end of the test.
func rareNode(t *testing.T, ctx context.Context, amount int) (node string) {
	t.Helper()
	nodes, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(t, err)
	for _, n := range nodes.Items {
		if len(n.Spec.Taints) == 0 && !n.Spec.Unschedulable {
			node = n.Name
		}
	}
	set := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"capacity":{%q:%s},"allocatable":{%q:%s}}}`, scarce, value, scarce, value)
		_, err := admin.CoreV1().Nodes().Patch(context.WithoutCancel(ctx), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		check(t, err)
	}
	set(fmt.Sprintf("%q", fmt.Sprint(amount)))
	t.Cleanup(func() { set("null") })
	return node
}

// class creates a PriorityClass, which lives as long as the test.
func class(t *testing.T, ctx context.Context, namespace, name string, value int32) string {
	t.Helper()
	c, err := admin.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}, Value: value}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		check(t, admin.SchedulingV1().PriorityClasses().Delete(context.WithoutCancel(ctx), c.Name, metav1.DeleteOptions{}))
	})
	return c.Name
}

// competitor returns a pod that takes some of the scarce resource.
func competitor(namespace, name, class string, amount int) *corev1.Pod {
	pod := sleeper(namespace, name)
	pod.Spec.PriorityClassName = class
	list := corev1.ResourceList{scarce: *resource.NewQuantity(int64(amount), resource.DecimalSI)}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	return pod
}

// preemptsLowest has a node full of pods of low and of medium priority.
func preemptsLowest(t *testing.T, ctx context.Context, namespace string) {
	node := rareNode(t, ctx, 5)
	low := run(t, ctx, competitor(namespace, "low", class(t, ctx, namespace, "low", 1), 2))
	medium := run(t, ctx, competitor(namespace, "medium", class(t, ctx, namespace, "medium", 100), 2))
	high := run(t, ctx, competitor(namespace, "high", class(t, ctx, namespace, "high", 1000), 2))
	if high.Spec.NodeName != node {
		t.Errorf("the pod is on %q, the resource on %q", high.Spec.NodeName, node)
	}
	gone(t, ctx, low)
	if got, err := admin.CoreV1().Pods(namespace).Get(ctx, medium.Name, metav1.GetOptions{}); err != nil || got.UID != medium.UID || got.DeletionTimestamp != nil {
		t.Errorf("the pod of medium priority was preempted: %v", err)
	}
}

// preemptsForCritical has a critical pod in kube-system.
func preemptsForCritical(t *testing.T, ctx context.Context, namespace string) {
	rareNode(t, ctx, 5)
	low := run(t, ctx, competitor(namespace, "low", class(t, ctx, namespace, "low", 1), 3))
	critical := competitor(metav1.NamespaceSystem, "critical-"+namespace, "system-cluster-critical", 3)
	t.Cleanup(func() {
		_ = admin.CoreV1().Pods(critical.Namespace).Delete(context.WithoutCancel(ctx), critical.Name, metav1.DeleteOptions{})
	})
	run(t, ctx, critical)
	gone(t, ctx, low)
}

// preemptedPodHasCondition keeps the preempted pod by a finalizer to look at it.
func preemptedPodHasCondition(t *testing.T, ctx context.Context, namespace string) {
	rareNode(t, ctx, 1)
	victim := competitor(namespace, "victim", class(t, ctx, namespace, "low", 1), 1)
	victim.Finalizers = []string{"example.com/test-finalizer"}
	victim = run(t, ctx, victim)
	t.Cleanup(func() {
		_, err := admin.CoreV1().Pods(namespace).Patch(context.WithoutCancel(ctx), victim.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		check(t, err)
	})
	create(t, ctx, competitor(namespace, "preemptor", class(t, ctx, namespace, "high", 1000), 1))
	podBecomes(t, ctx, victim, "is preempted", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	podBecomes(t, ctx, victim, "has the condition", func(pod *corev1.Pod) bool {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				return c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
			}
		}
		return false
	})
}

// preemptsReplicaSets fills the node with ReplicaSets of rising priority, whose controller
// replaces preempted pods. The last one takes the place of all pods of the first.
func preemptsReplicaSets(t *testing.T, ctx context.Context, namespace string) {
	rareNode(t, ctx, 1000)
	sets := []struct {
		name             string
		replicas, amount int
		running          int // in the end
	}{
		{"p1", 5, 40, 0}, {"p2", 4, 50, 4}, {"p3", 4, 95, 4}, {"p4", 1, 400, 1},
	}
	running := func(name string, want int) {
		t.Helper()
		eventually(t, ctx, fmt.Sprintf("%d pods of %s run", want, name), func() error {
			list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "name=" + name})
			if err != nil {
				return err
			}
			n := 0
			for _, pod := range list.Items {
				if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("%d run", n)
			}
			return nil
		})
	}
	for i, s := range sets {
		labels, replicas := map[string]string{"name": s.name}, int32(s.replicas)
		pod := competitor(namespace, "", class(t, ctx, namespace, s.name, int32(i+1)), s.amount)
		_, err := admin.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: s.name},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			},
		}, metav1.CreateOptions{})
		check(t, err)
		running(s.name, s.replicas)
	}
	for _, s := range sets {
		running(s.name, s.running)
	}
}
