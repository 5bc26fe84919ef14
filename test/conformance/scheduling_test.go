package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// scheduling returns the rows of the area scheduling.
func scheduling() []testcase {
	return append([]testcase{
		{id: "limitrange-defaults", test: limitRangeDefaults},
		{id: "limitrange-list-patch-deletecollection", test: limitRangeCollection},
		{id: "sched-nodeselector-match", test: selectorMatches, serial: true},
		{id: "sched-nodeselector-nomatch", test: selectorWithoutMatch},
		{id: "sched-hostport-conflict-wildcard", test: hostPortConflict, serial: true},
		{id: "sched-resource-limits", test: resourceLimits, serial: true},
		{id: "taint-evict-min-toleration-seconds", test: evictedInTurn, serial: true, nodes: 2},
		{id: "taint-removal-cancels-eviction", test: taintRemoved, serial: true, nodes: 2},
	}, preemptionRows...)
}

// unschedulable waits until the scheduler has said that no node fits.
func unschedulable(t *testing.T, ctx context.Context, pod *corev1.Pod) {
	t.Helper()
	podBecomes(t, ctx, pod, "is not scheduled", func(pod *corev1.Pod) bool {
		if pod.Spec.NodeName != "" {
			t.Fatalf("the pod is on %s", pod.Spec.NodeName)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return true
			}
		}
		return false
	})
	eventually(t, ctx, "there is an event FailedScheduling", func() error {
		list, err := admin.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name + ",reason=FailedScheduling"})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
}

func selectorWithoutMatch(t *testing.T, ctx context.Context, namespace string) {
	pod := sleeper(namespace, "pod")
	pod.Spec.NodeSelector = map[string]string{"label": "nonempty"}
	unschedulable(t, ctx, create(t, ctx, pod))
}

// selectorMatches labels the node on which a first pod runs.
func selectorMatches(t *testing.T, ctx context.Context, namespace string) {
	node, key := run(t, ctx, sleeper(namespace, "first")).Spec.NodeName, "e2e.example.com/"+namespace
	patch := func(value string) {
		t.Helper()
		_, err := admin.CoreV1().Nodes().Patch(context.WithoutCancel(ctx), node, types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)), metav1.PatchOptions{})
		check(t, err)
	}
	patch(`"42"`)
	t.Cleanup(func() { patch("null") })
	pod := sleeper(namespace, "second")
	pod.Spec.NodeSelector = map[string]string{key: "42"}
	if got := run(t, ctx, pod); got.Spec.NodeName != node {
		t.Errorf("the pod is on %s, the label on %s", got.Spec.NodeName, node)
	}
}

// hostPortConflict has two pods with one host port: one for all addresses of
// the node, the other for one of them.
func hostPortConflict(t *testing.T, ctx context.Context, namespace string) {
	first := sleeper(namespace, "first")
	first.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 54322, ContainerPort: 8080, HostIP: "0.0.0.0"}}
	first = run(t, ctx, first)
	second := sleeper(namespace, "second")
	second.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 54322, ContainerPort: 8080, HostIP: first.Status.HostIP}}
	second.Spec.NodeSelector = map[string]string{corev1.LabelHostname: first.Spec.NodeName}
	unschedulable(t, ctx, create(t, ctx, second))
}

// resourceLimits fills the nodes with pods that request cpu.
func resourceLimits(t *testing.T, ctx context.Context, namespace string) {
	nodes, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(t, err)
	for _, node := range nodes.Items {
		if len(node.Spec.Taints) > 0 || node.Spec.Unschedulable {
			continue
		}
		free := node.Status.Allocatable.Cpu().MilliValue()
		pods, err := admin.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
		check(t, err)
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				continue
			}
			for _, c := range pod.Spec.Containers {
				free -= c.Resources.Requests.Cpu().MilliValue()
			}
		}
		filler := sleeper(namespace, strings.ReplaceAll("filler-"+node.Name, ".", "-"))
		filler.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
		filler.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(free*7/10, resource.DecimalSI)}
		run(t, ctx, filler)
	}
	pod := sleeper(namespace, "additional")
	largest := int64(0)
	for _, node := range nodes.Items {
		largest = max(largest, node.Status.Allocatable.Cpu().MilliValue())
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(largest*5/10, resource.DecimalSI)}
	unschedulable(t, ctx, create(t, ctx, pod))
}

// tolerant runs a pod on node, or on any if it is empty, that tolerates the taint
// of taint for some seconds.
func tolerant(t *testing.T, ctx context.Context, namespace, name, node string, seconds int64) *corev1.Pod {
	t.Helper()
	pod := sleeper(namespace, name)
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "e2e.example.com/evict", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}}
	return run(t, ctx, pod)
}

// taint gives a node a NoExecute taint until the returned function or the end of
// the test removes it.
func taint(t *testing.T, ctx context.Context, node string) (remove func()) {
	t.Helper()
	set := func(ctx context.Context, taints string) {
		t.Helper()
		_, err := admin.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
		check(t, err)
	}
	set(ctx, `[{"key":"e2e.example.com/evict","value":"yes","effect":"NoExecute"}]`)
	remove = func() { set(context.WithoutCancel(ctx), `null`) }
	t.Cleanup(remove)
	return remove
}

// evictedInTurn has two pods on one node, each evicted when its own time is over.
func evictedInTurn(t *testing.T, ctx context.Context, namespace string) {
	first := tolerant(t, ctx, namespace, "first", "", 5)
	second := tolerant(t, ctx, namespace, "second", first.Spec.NodeName, 25)
	begin := time.Now()
	taint(t, ctx, first.Spec.NodeName)
	gone(t, ctx, first)
	if took := time.Since(begin); took < 4*time.Second || took > 20*time.Second {
		t.Errorf("the first pod was evicted after %s, want about 5 s", took)
	}
	if pod, err := admin.CoreV1().Pods(namespace).Get(ctx, second.Name, metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("the second pod was evicted with the first: %v", err)
	}
	gone(t, ctx, second)
	if took := time.Since(begin); took < 24*time.Second {
		t.Errorf("the second pod was evicted after %s, want 25 s", took)
	}
}

// taintRemoved removes the taint before the pod's time is over.
func taintRemoved(t *testing.T, ctx context.Context, namespace string) {
	pod := tolerant(t, ctx, namespace, "pod", "", 15)
	remove := taint(t, ctx, pod.Spec.NodeName)
	time.Sleep(5 * time.Second)
	remove()
	time.Sleep(20 * time.Second)
	kept, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	check(t, err)
	if kept.UID != pod.UID || kept.DeletionTimestamp != nil {
		t.Errorf("the pod was evicted although the taint was removed in time")
	}
}
