package conformance

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probes returns the rows of probes.
func probes() []testcase {
	exec := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "/tmp/health"}}}
	http := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}
	grpc := func(port int32) corev1.ProbeHandler { return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port}} }
	const serve = "mkdir /tmp/www && echo ok > /tmp/www/healthz && httpd -p 8080 -h /tmp/www && "
	return []testcase{
		{id: "probe-liveness-exec-ok", test: keepsRunning(live("echo ok > /tmp/health; sleep 3600", exec))},
		{id: "probe-liveness-exec-fail", test: isRestarted(1, live("echo ok > /tmp/health; sleep 10; rm /tmp/health; sleep 3600", exec))},
		{id: "probe-liveness-http-ok", test: keepsRunning(live(serve+"sleep 3600", http))},
		{id: "probe-liveness-http-fail", test: isRestarted(1, live(serve+"sleep 10; rm /tmp/www/healthz; sleep 3600", http))},
		{id: "probe-liveness-tcp-ok", test: keepsRunning(live("mkdir /tmp/www && httpd -p 8080 -h /tmp/www && sleep 3600", tcp))},
		{id: "probe-liveness-grpc-ok", test: keepsRunning(liveGRPC(grpc(5000)))},
		{id: "probe-liveness-grpc-fail", test: isRestarted(1, liveGRPC(grpc(2333)))},
		{id: "probe-restart-count-monotonic", test: isRestarted(5, live(serve+"sleep 5; rm /tmp/www/healthz; sleep 3600", http)), long: true},
		{id: "probe-readiness-fail", test: neverReady},
		{id: "probe-readiness-initial-delay", test: readyAfterDelay},
	}
}

// live returns a pod that runs the script and has the liveness probe.
func live(text string, handler corev1.ProbeHandler) func(namespace string) *corev1.Pod {
	return func(namespace string) *corev1.Pod {
		pod := script(namespace, text)
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: handler, InitialDelaySeconds: 5, PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 1}
		return pod
	}
}

// liveGRPC returns a pod that serves gRPC health checks on port 5000.
func liveGRPC(handler corev1.ProbeHandler) func(namespace string) *corev1.Pod {
	return func(namespace string) *corev1.Pod {
		pod := live("", handler)(namespace)
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = conformanceImage, []string{"/conformance", "grpc", ":5000"}
		return pod
	}
}

// observation is how long a container must run without a restart.
const observation = 40 * time.Second

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}

// stays looks at the pod for the time of the observation.
func stays(t *testing.T, ctx context.Context, pod *corev1.Pod, ok func(*corev1.Pod) bool) {
	t.Helper()
	end, tick := time.After(observation), time.NewTicker(500*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return
		case <-tick.C:
			got, err := admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			check(t, err)
			if !ok(got) {
				t.Fatalf("the pod changed: %+v", got.Status)
			}
		}
	}
}

func keepsRunning(of func(namespace string) *corev1.Pod) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := run(t, ctx, of(namespace))
		stays(t, ctx, pod, func(pod *corev1.Pod) bool { return restarts(pod) == 0 })
	}
}

// isRestarted waits for n restarts and wants their number never to go down.
func isRestarted(n int32, of func(namespace string) *corev1.Pod) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod, most := create(t, ctx, of(namespace)), int32(0)
		podBecomes(t, ctx, pod, "is restarted", func(pod *corev1.Pod) bool {
			if restarts(pod) < most {
				t.Fatalf("restartCount went from %d to %d", most, restarts(pod))
			}
			most = restarts(pod)
			return most >= n
		})
	}
}

func neverReady(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "sleep 3600")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}, PeriodSeconds: 2}
	pod = run(t, ctx, pod)
	stays(t, ctx, pod, func(pod *corev1.Pod) bool {
		return !isReady(pod) && restarts(pod) == 0 && pod.Status.Phase == corev1.PodRunning
	})
}

func readyAfterDelay(t *testing.T, ctx context.Context, namespace string) {
	const delay = 20 * time.Second
	pod := script(namespace, "sleep 3600")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, InitialDelaySeconds: int32(delay.Seconds()), PeriodSeconds: 2,
	}
	pod = podBecomes(t, ctx, create(t, ctx, pod), "is ready", isReady)
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	for _, c := range pod.Status.Conditions {
		if waited := c.LastTransitionTime.Sub(started.Time); c.Type == corev1.PodReady && waited < delay-time.Second { // times have whole seconds
			t.Errorf("the pod was ready %s after the start of its container, the delay is %s", waited, delay)
		}
	}
	if restarts(pod) != 0 {
		t.Errorf("%d restarts", restarts(pod))
	}
}
