package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// scheduling returns the rows of the area scheduling.
func scheduling() []testcase {
	return []testcase{
		{id: "sched-nodeselector-match", test: selectorMatches, serial: true},
		{id: "sched-nodeselector-nomatch", test: selectorWithoutMatch},
		{id: "sched-hostport-conflict-wildcard", test: hostPortConflict, serial: true},
		{id: "sched-resource-limits", test: resourceLimits, serial: true},
	}
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
