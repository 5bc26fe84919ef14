package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podSubresourceRows are the rows of pods/ephemeralcontainers and pods/resize.
var podSubresourceRows = []testcase{
	{id: "ephemeral-container-start", test: ephemeralStart},
	{id: "ephemeral-containers-update", test: ephemeralUpdate},
	{id: "pod-resize-burstable-6-containers", test: resizes([]size{
		{"20m/20Mi", "30m/30Mi"}, {"20m/20Mi", "30m/30Mi"}, {"20m/20Mi", ""}, {"20m/", "30m/"}, {"/20Mi", "/30Mi"}, {"20m/20Mi", "30m/30Mi"},
	}, []size{
		{"25m/25Mi", "35m/35Mi"}, {"15m/15Mi", "25m/25Mi"}, {"20m/20Mi", "40m/40Mi"}, {"20m/20Mi", "30m/"}, {"10m/20Mi", "20m/30Mi"}, {"30m/15Mi", "40m/25Mi"},
	}, false)},
	{id: "pod-resize-equivalents", test: resizes([]size{{"2m/", "10m/"}}, []size{{"1m/", "5m/"}}, true)},
	{id: "pod-resize-guaranteed-net-increase", test: resizes(
		[]size{{"20m/20Mi", "20m/20Mi"}, {"30m/30Mi", "30m/30Mi"}, {"40m/40Mi", "40m/40Mi"}},
		[]size{{"30m/30Mi", "30m/30Mi"}, {"45m/45Mi", "45m/45Mi"}, {"30m/30Mi", "30m/30Mi"}}, true)},
	{id: "pod-resize-guaranteed-net-decrease", test: resizes(
		[]size{{"20m/20Mi", "20m/20Mi"}, {"40m/40Mi", "40m/40Mi"}, {"40m/40Mi", "40m/40Mi"}},
		[]size{{"25m/25Mi", "25m/25Mi"}, {"20m/20Mi", "20m/20Mi"}, {"30m/30Mi", "30m/30Mi"}}, true)},
	{id: "pod-resize-guaranteed-mixed", test: resizes(
		[]size{{"20m/20Mi", "20m/20Mi"}, {"40m/30Mi", "40m/30Mi"}, {"20m/20Mi", "20m/20Mi"}},
		[]size{{"30m/20Mi", "30m/20Mi"}, {"20m/40Mi", "20m/40Mi"}, {"30m/30Mi", "30m/30Mi"}}, true)},
	{id: "pod-resize-replace-endpoint", test: resizeReplace},
}

// debugging returns an ephemeral container that prints its name.
func debugging(name string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{
		TargetContainerName: "c",
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: busybox, Command: []string{"sh", "-c", "echo this is " + name + "; sleep 3600"},
		},
	}
}

func addEphemeral(t *testing.T, ctx context.Context, pod *corev1.Pod, list ...corev1.EphemeralContainer) *corev1.Pod {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": list}})
	check(t, err)
	pod, err = admin.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "ephemeralcontainers")
	check(t, err)
	return pod
}

func ephemeralRuns(name string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		for _, s := range pod.Status.EphemeralContainerStatuses {
			if s.Name == name && s.State.Running != nil {
				return true
			}
		}
		return false
	}
}

func ephemeralStart(t *testing.T, ctx context.Context, namespace string) {
	pod := run(t, ctx, sleeper(namespace, "debugged"))
	addEphemeral(t, ctx, pod, debugging("debugger"))
	pod = podBecomes(t, ctx, pod, "runs the ephemeral container", ephemeralRuns("debugger"))
	logsShow(t, ctx, pod, "debugger", "this is debugger")
	if text := exec(t, ctx, pod, "debugger", "ps"); !strings.Contains(text, "sleep 3600") {
		t.Errorf("the processes of the target do not show: %q", text)
	}
	if pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the app container was restarted: %+v", pod.Status.ContainerStatuses[0])
	}
}

func ephemeralUpdate(t *testing.T, ctx context.Context, namespace string) {
	pods := admin.CoreV1().Pods(namespace)
	pod := run(t, ctx, sleeper(namespace, "debugged"))
	addEphemeral(t, ctx, pod, debugging("first"))
	podBecomes(t, ctx, pod, "runs the first ephemeral container", ephemeralRuns("first"))

	var got corev1.Pod
	check(t, admin.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("ephemeralcontainers").Do(ctx).Into(&got))
	if len(got.Spec.EphemeralContainers) != 1 || got.Spec.EphemeralContainers[0].Name != "first" {
		t.Fatalf("ephemeral containers: %+v", got.Spec.EphemeralContainers)
	}
	eventually(t, ctx, "the second is added", func() error {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, debugging("second"))
		_, err = pods.UpdateEphemeralContainers(ctx, now.Name, now, metav1.UpdateOptions{})
		return err
	})
	pod = podBecomes(t, ctx, pod, "runs the second ephemeral container", ephemeralRuns("second"))
	if list := pod.Spec.EphemeralContainers; len(list) != 2 || !ephemeralRuns("first")(pod) {
		t.Errorf("ephemeral containers: %+v, %+v", list, pod.Status.EphemeralContainerStatuses)
	}
}

// size is the requests and the limits of a container, as "cpu/memory"; an empty
// quantity is not set.
type size struct{ requests, limits string }

func (s size) resources() corev1.ResourceRequirements {
	requestCPU, requestMemory, _ := strings.Cut(s.requests, "/")
	limitCPU, limitMemory, _ := strings.Cut(s.limits, "/")
	return resources(requestCPU, requestMemory, limitCPU, limitMemory)
}

// sized returns a pod of containers c1, c2, ... of the sizes.
func sized(namespace string, sizes []size) *corev1.Pod {
	pod := sleeper(namespace, "resized")
	template := pod.Spec.Containers[0]
	pod.Spec.Containers = nil
	for i, s := range sizes {
		c := template
		c.Name, c.Resources = fmt.Sprintf("c%d", i+1), s.resources()
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// resizes runs a pod of the sizes of from, resizes it to to, and back if back is set.
func resizes(from, to []size, back bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := run(t, ctx, sized(namespace, from))
		hasSizes(t, ctx, pod)
		resizePod(t, ctx, pod, to)
		if back {
			resizePod(t, ctx, pod, from)
		}
	}
}

func resizePod(t *testing.T, ctx context.Context, pod *corev1.Pod, to []size) {
	t.Helper()
	var list []map[string]any
	for i, s := range to {
		list = append(list, map[string]any{"name": fmt.Sprintf("c%d", i+1), "resources": s.resources()})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": list}})
	check(t, err)
	got, err := admin.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
	check(t, err)
	for i, s := range sized(pod.Namespace, to).Spec.Containers {
		if !includes(got.Spec.Containers[i].Resources, s.Resources) {
			t.Fatalf("container %d of the resized pod: %+v", i, got.Spec.Containers[i].Resources)
		}
	}
	hasSizes(t, ctx, got)
}

// includes reports whether got has what want has. The API adds requests for limits.
func includes(got, want corev1.ResourceRequirements) bool {
	for name, q := range want.Requests {
		if has := got.Requests[name]; has.Cmp(q) != 0 {
			return false
		}
	}
	for name, q := range want.Limits {
		if has := got.Limits[name]; has.Cmp(q) != 0 {
			return false
		}
	}
	return len(got.Limits) == len(want.Limits)
}

// hasSizes waits until the status of the pod and the cgroups of its containers show the
// resources of its spec.
func hasSizes(t *testing.T, ctx context.Context, pod *corev1.Pod) {
	t.Helper()
	eventually(t, ctx, "the pod has the resources of its spec", func() error {
		now, err := admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				return fmt.Errorf("condition %+v", c)
			}
		}
		for i, c := range pod.Spec.Containers {
			s := now.Status.ContainerStatuses[i]
			if s.Resources == nil || !apiequality.Semantic.DeepEqual(*s.Resources, c.Resources) || !apiequality.Semantic.DeepEqual(s.AllocatedResources, c.Resources.Requests) || s.RestartCount != 0 {
				return fmt.Errorf("status of %s: %+v, allocated %+v, want %+v", c.Name, s.Resources, s.AllocatedResources, c.Resources)
			}
			if err := cgroupIs(ctx, now, &c); err != nil {
				return err
			}
		}
		return nil
	})
}

// cgroupScript prints the CPU quota and shares and the memory limit of a container's
// cgroup of version 1, or CPU quota, weight and memory limit of version 2.
const cgroupScript = `cd /sys/fs/cgroup
if [ -e cpu.max ]; then echo v2 $(cut -d" " -f1 cpu.max) $(cat cpu.weight) $(cat memory.max)
else echo v1 $(cat cpu/cpu.cfs_quota_us) $(cat cpu/cpu.shares) $(cat memory/memory.limit_in_bytes); fi`

// cgroupIs compares the settings of a container's cgroup with its resources.
func cgroupIs(ctx context.Context, pod *corev1.Pod, c *corev1.Container) error {
	text, err := tryExec(ctx, pod, c.Name, "sh", "-c", cgroupScript)
	if err != nil {
		return err
	}
	var version, quota, memory string
	var shares int64
	if _, err := fmt.Sscan(text, &version, &quota, &shares, &memory); err != nil {
		return fmt.Errorf("cgroup of %s: %q: %w", c.Name, text, err)
	}
	request := c.Resources.Requests.Cpu().MilliValue()
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; !ok {
		request = c.Resources.Limits.Cpu().MilliValue()
	}
	wantShares := max(request*1024/1000, 2)
	if version == "v1" && shares != wantShares {
		return fmt.Errorf("cgroup of %s: %d CPU shares, want %d", c.Name, shares, wantShares)
	}
	if limit := c.Resources.Limits.Cpu().MilliValue(); limit > 0 && quota != fmt.Sprint(max(limit*100, 1000)) {
		return fmt.Errorf("cgroup of %s: CPU quota %s for %dm", c.Name, quota, limit)
	}
	if limit := c.Resources.Limits.Memory().Value(); limit > 0 && memory != fmt.Sprint(limit) {
		return fmt.Errorf("cgroup of %s: memory limit %s, want %d", c.Name, memory, limit)
	}
	return nil
}

func resizeReplace(t *testing.T, ctx context.Context, namespace string) {
	pods := admin.CoreV1().Pods(namespace)
	pod := run(t, ctx, sized(namespace, []size{{"20m/20Mi", "30m/30Mi"}}))
	want := size{"25m/25Mi", "35m/35Mi"}.resources()
	eventually(t, ctx, "the pod is replaced", func() error {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Spec.Containers[0].Resources = want
		pod, err = pods.UpdateResize(ctx, now.Name, now, metav1.UpdateOptions{})
		return err
	})
	hasSizes(t, ctx, pod)
	eventually(t, ctx, "GET pods/resize returns the pod", func() error {
		whole, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var part corev1.Pod
		if err := admin.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("resize").Do(ctx).Into(&part); err != nil {
			return err
		}
		if !apiequality.Semantic.DeepEqual(whole, &part) {
			return fmt.Errorf("the pod is %+v, its resize %+v", whole, part)
		}
		return nil
	})
}
