package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// script returns a pod that runs a shell script once.
func script(namespace, text string) *corev1.Pod {
	grace, no := int64(0), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "script", Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: busybox, Command: []string{"sh", "-c", text}}},
		},
	}
}

// mount adds a volume to the pod and mounts it into the first container.
func mount(pod *corev1.Pod, name, path string, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

// create creates the pod.
func create(t *testing.T, ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := admin.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	check(t, err)
	return made
}

// podBecomes waits until the pod is as ok wants it and returns it.
func podBecomes(t *testing.T, ctx context.Context, pod *corev1.Pod, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	eventually(t, ctx, "pod "+pod.Name+" "+what, func() error {
		got, err := admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if last = got; !ok(got) {
			return fmt.Errorf("its status is %+v", got.Status)
		}
		return nil
	})
	return last
}

func inPhase(phases ...corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return slices.Contains(phases, pod.Status.Phase) }
}

func isReady(pod *corev1.Pod) bool { return hasCondition(pod, corev1.PodReady, corev1.ConditionTrue) }

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == status })
}

func podLogs(t *testing.T, ctx context.Context, pod *corev1.Pod, container string) string {
	t.Helper()
	text, err := admin.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	check(t, err)
	return string(text)
}

// output runs the pod to its end, wants it to succeed, and returns what its
// first container printed.
func output(t *testing.T, ctx context.Context, pod *corev1.Pod) string {
	t.Helper()
	pod = create(t, ctx, pod)
	pod = podBecomes(t, ctx, pod, "ends", inPhase(corev1.PodSucceeded, corev1.PodFailed))
	text := podLogs(t, ctx, pod, pod.Spec.Containers[0].Name)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Fatalf("the pod failed: %s%+v", text, pod.Status)
	}
	return text
}

// prints runs the pod to its end and wants exactly these lines.
func prints(t *testing.T, ctx context.Context, pod *corev1.Pod, want ...string) {
	t.Helper()
	if got := output(t, ctx, pod); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("the container printed %q, want %q", got, want)
	}
}

// logsShow waits until the log of the container has all the lines.
func logsShow(t *testing.T, ctx context.Context, pod *corev1.Pod, container string, want ...string) {
	t.Helper()
	eventually(t, ctx, "the log shows "+strings.Join(want, ", "), func() error {
		text, err := admin.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		if err != nil {
			return err
		}
		for _, line := range want {
			if !slices.Contains(strings.Split(string(text), "\n"), line) {
				return fmt.Errorf("no line %q in %q", line, text)
			}
		}
		return nil
	})
}

// updatePod changes the pod by get and update, again after a conflict.
func updatePod(t *testing.T, ctx context.Context, namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	var made *corev1.Pod
	eventually(t, ctx, "update of pod "+name, func() error {
		pod, err := admin.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(pod)
		made, err = admin.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
		return err
	})
	return made
}

// resources returns requests and limits of cpu and memory; an empty text leaves
// one out.
func resources(cpuRequest, memoryRequest, cpuLimit, memoryLimit string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		if cpu != "" {
			out[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			out[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return out
	}
	return corev1.ResourceRequirements{Requests: list(cpuRequest, memoryRequest), Limits: list(cpuLimit, memoryLimit)}
}

// invalid wants a 422.
func invalid(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: got %v, want it to be invalid", what, err)
	}
}
