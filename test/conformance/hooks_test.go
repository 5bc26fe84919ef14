package conformance

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// lifecycleHooks returns the rows of postStart and preStop.
func lifecycleHooks() []testcase {
	get := func(server string, marker string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: server, Port: intstr.FromInt32(8080), Path: "/" + marker}}
	}
	wget := func(server string, marker string) *corev1.LifecycleHandler {
		url := "http://" + net.JoinHostPort(server, "8080") + "/" + marker
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"wget", "-q", "-O", "/dev/null", url}}}
	}
	return []testcase{
		{id: "lifecycle-poststart-exec", test: hook(wget, true)},
		{id: "lifecycle-poststart-http", test: hook(get, true)},
		{id: "lifecycle-prestop-exec", test: hook(wget, false)},
		{id: "lifecycle-prestop-http", test: hook(get, false)},
	}
}

// echoServer runs a pod that answers GET /hook-called and logs each request.
func echoServer(t *testing.T, ctx context.Context, namespace string) *corev1.Pod {
	t.Helper()
	pod := script(namespace, "mkdir /tmp/www && echo ok > /tmp/www/ready && echo ok > /tmp/www/hook-called && exec httpd -f -vv -p 8080 -h /tmp/www")
	pod.Name = "server"
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}},
	}
	return podBecomes(t, ctx, create(t, ctx, pod), "is ready", isReady)
}

// hook runs a pod with the hook, which calls a helper pod, and waits for the
// call.
func hook(handler func(server, marker string) *corev1.LifecycleHandler, postStart bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		server := echoServer(t, ctx, namespace)
		h := handler(server.Status.PodIP, "hook-called")
		pod := sleeper(namespace, "hooked")
		pod.Spec.TerminationGracePeriodSeconds = ptr(int64(15))
		if pod.Spec.Containers[0].Lifecycle = (&corev1.Lifecycle{PreStop: h}); postStart {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: h}
		}
		pod = run(t, ctx, pod)
		called := func() error {
			if text := podLogs(t, ctx, server, "c"); !strings.Contains(text, "hook-called") {
				return fmt.Errorf("the server has logged %q", text)
			}
			return nil
		}
		if !postStart {
			if called() == nil {
				t.Error("the hook was called before the pod was deleted")
			}
			check(t, admin.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(15))}))
		}
		eventually(t, ctx, "the hook is called", called)
	}
}
