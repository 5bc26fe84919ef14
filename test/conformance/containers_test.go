package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// containerCommands returns the rows of a container's command and arguments.
func containerCommands() []testcase {
	row := func(want string, command, args []string) func(*testing.T, context.Context, string) {
		return func(t *testing.T, ctx context.Context, namespace string) {
			pod := script(namespace, "")
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = conformanceImage, command, args
			prints(t, ctx, pod, want)
		}
	}
	return []testcase{
		{id: "container-image-defaults", test: row("default", nil, nil)},
		{id: "container-args-override", test: row("override arguments", nil, []string{"override", "arguments"})},
		{id: "container-command-override", test: row("", []string{"/conformance", "print"}, nil)},
		{id: "container-command-args-override", test: row("override arguments", []string{"/conformance"}, []string{"print", "override", "arguments"})},
	}
}

// initContainers returns the rows of init containers.
func initContainers() []testcase {
	return []testcase{
		{id: "init-containers-restart-never", test: initNever},
		{id: "init-containers-restart-always", test: initAlways},
		{id: "init-failure-restart-always", test: initFailureAlways},
		{id: "init-failure-restart-never", test: initFailureNever},
	}
}

// withInit returns a pod whose init containers run the scripts.
func withInit(namespace, app string, policy corev1.RestartPolicy, scripts ...string) *corev1.Pod {
	pod := script(namespace, app)
	pod.Spec.RestartPolicy = policy
	for i, text := range scripts {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("init%d", i+1), Image: busybox, Command: []string{"sh", "-c", text}})
	}
	return pod
}

// inOrder wants all init containers to have ended well, one after the other.
func inOrder(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if !hasCondition(pod, corev1.PodInitialized, corev1.ConditionTrue) {
		t.Error("the pod is not Initialized")
	}
	var last metav1.Time
	for _, s := range pod.Status.InitContainerStatuses {
		end := s.State.Terminated
		if !s.Ready || end == nil || end.ExitCode != 0 {
			t.Fatalf("init container %s: %+v", s.Name, s)
		}
		if end.StartedAt.Before(&last) {
			t.Errorf("init container %s began before the one before it ended", s.Name)
		}
		last = end.FinishedAt
	}
}

func initNever(t *testing.T, ctx context.Context, namespace string) {
	pod := create(t, ctx, withInit(namespace, "true", corev1.RestartPolicyNever, "true", "true"))
	inOrder(t, podBecomes(t, ctx, pod, "succeeds", inPhase(corev1.PodSucceeded)))
}

func initAlways(t *testing.T, ctx context.Context, namespace string) {
	pod := create(t, ctx, withInit(namespace, "sleep 3600", corev1.RestartPolicyAlways, "true", "true"))
	inOrder(t, podBecomes(t, ctx, pod, "runs", inPhase(corev1.PodRunning)))
}

func initFailureAlways(t *testing.T, ctx context.Context, namespace string) {
	pod := create(t, ctx, withInit(namespace, "sleep 3600", corev1.RestartPolicyAlways, "false", "true"))
	pod = podBecomes(t, ctx, pod, "restarts its first init container three times", func(pod *corev1.Pod) bool {
		if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
			t.Fatalf("the pod is %s", pod.Status.Phase)
		}
		return len(pod.Status.InitContainerStatuses) > 0 && pod.Status.InitContainerStatuses[0].RestartCount >= 3
	})
	neverStarted(t, pod)
	if !hasCondition(pod, corev1.PodInitialized, corev1.ConditionFalse) {
		t.Error("the pod is Initialized")
	}
}

func initFailureNever(t *testing.T, ctx context.Context, namespace string) {
	pod := create(t, ctx, withInit(namespace, "true", corev1.RestartPolicyNever, "true", "false"))
	pod = podBecomes(t, ctx, pod, "fails", inPhase(corev1.PodFailed, corev1.PodSucceeded))
	if pod.Status.Phase != corev1.PodFailed {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	neverStarted(t, pod)
}

// neverStarted wants the app container to wait for initialisation.
func neverStarted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting == nil || s.State.Waiting.Reason != "PodInitializing" || s.RestartCount != 0 {
			t.Errorf("container %s: %+v", s.Name, s)
		}
	}
	if len(pod.Status.ContainerStatuses) != 1 {
		t.Errorf("%d container statuses", len(pod.Status.ContainerStatuses))
	}
}

// kubeletRows returns the rows of what the kubelet gives every container.
func kubeletRows() []testcase {
	return []testcase{
		{id: "kubelet-delete-failing-pod", test: deleteFailing},
		{id: "kubelet-host-aliases", test: hostAliases},
		{id: "kubelet-logs-stdout", test: logsStdout},
		{id: "kubelet-managed-etc-hosts", test: managedHosts},
		{id: "kubelet-readonly-rootfs", test: readOnlyRoot},
		{id: "kubelet-terminated-reason", test: terminatedReason},
		{id: "restart-policy-phases", test: restartPolicies},
	}
}

func deleteFailing(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "false")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod = create(t, ctx, pod)
	podBecomes(t, ctx, pod, "has failed once", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0
	})
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	gone(t, ctx, pod)
}

// gone waits until the pod does not exist any more.
func gone(t *testing.T, ctx context.Context, pod *corev1.Pod) {
	t.Helper()
	eventually(t, ctx, "pod "+pod.Name+" is gone", func() error {
		got, err := admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && got.UID != pod.UID {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
}

func hostAliases(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "grep 123.45.67.89 /etc/hosts")
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "123.45.67.89", Hostnames: []string{"foo", "bar"}}}
	prints(t, ctx, pod, "123.45.67.89\tfoo\tbar")
}

func logsStdout(t *testing.T, ctx context.Context, namespace string) {
	prints(t, ctx, script(namespace, "echo 'Hello World'"), "Hello World")
}

// managedHosts reads /etc/hosts in containers with and without a mount of
// their own, on the pod network and on the host's.
func managedHosts(t *testing.T, ctx context.Context, namespace string) {
	fileSource{}.create(t, ctx, namespace, "hosts", map[string]string{"hosts": "1.2.3.4 own\n"})
	const marker = "# Kubernetes-managed hosts file.\n" // a host-network pod has another one
	pod := sleeper(namespace, "network")
	own := pod.Spec.Containers[0].DeepCopy()
	own.Name = "own"
	own.VolumeMounts = []corev1.VolumeMount{{Name: "hosts", MountPath: "/etc/hosts", SubPath: "hosts"}}
	pod.Spec.Containers = append(pod.Spec.Containers, *own)
	pod.Spec.Volumes = []corev1.Volume{{Name: "hosts", VolumeSource: fileSource{}.volume("hosts", 0, false)}}
	host := sleeper(namespace, "host")
	host.Spec.HostNetwork = true
	pod, host = run(t, ctx, pod), run(t, ctx, host)
	for _, tc := range []struct {
		pod       *corev1.Pod
		container string
		managed   bool
	}{{pod, "c", true}, {pod, "own", false}, {host, "c", false}} {
		if got := exec(t, ctx, tc.pod, tc.container, "cat", "/etc/hosts"); strings.HasPrefix(got, marker) != tc.managed {
			t.Errorf("container %s of pod %s: /etc/hosts is %q", tc.container, tc.pod.Name, got)
		}
	}
}

func readOnlyRoot(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo test > /file; true")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr(true)}
	if got := output(t, ctx, pod); !strings.Contains(got, "Read-only file system") {
		t.Errorf("the container printed %q", got)
	}
}

func terminatedReason(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "exit 3")
	pod = podBecomes(t, ctx, create(t, ctx, pod), "fails", inPhase(corev1.PodFailed))
	end := pod.Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.ExitCode != 3 || end.Reason != "Error" {
		t.Errorf("state.terminated is %+v", end)
	}
}

// restartPolicies runs a container that fails at first and then ends well,
// under each policy.
func restartPolicies(t *testing.T, ctx context.Context, namespace string) {
	for _, tc := range []struct {
		policy   corev1.RestartPolicy
		phase    corev1.PodPhase
		restarts int32
		ready    bool
		exit     int32
	}{
		{corev1.RestartPolicyAlways, corev1.PodRunning, 2, true, 0},
		{corev1.RestartPolicyOnFailure, corev1.PodSucceeded, 1, false, 0},
		{corev1.RestartPolicyNever, corev1.PodFailed, 0, false, 1},
	} {
		pod := script(namespace, `
			count=$(cat /restarts/count 2>/dev/null || echo 0)
			echo $((count + 1)) > /restarts/count
			[ $count = 0 ] && exit 1
			[ $count = 1 ] && exit 0
			sleep 3600`)
		pod.Name = strings.ToLower(string(tc.policy))
		pod.Spec.RestartPolicy = tc.policy
		mount(pod, "restarts", "/restarts", emptyDir(corev1.StorageMediumDefault))
		pod = create(t, ctx, pod)
		pod = podBecomes(t, ctx, pod, "has its phase and restarts", func(pod *corev1.Pod) bool {
			return pod.Status.Phase == tc.phase && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount == tc.restarts && isReady(pod) == tc.ready
		})
		state := pod.Status.ContainerStatuses[0].State
		if tc.ready && state.Running == nil || !tc.ready && (state.Terminated == nil || state.Terminated.ExitCode != tc.exit) {
			t.Errorf("%s: the container's state is %+v", tc.policy, state)
		}
	}
}

// securityRows returns the rows of the security context.
func securityRows() []testcase {
	return []testcase{
		{id: "security-no-privilege-escalation", test: noEscalation},
		{id: "security-runasuser-65534", test: runAsNobody},
		{id: "security-unprivileged", test: unprivileged},
		{id: "security-writable-rootfs", test: writableRoot},
	}
}

// noEscalation starts a setuid root binary as another user.
func noEscalation(t *testing.T, ctx context.Context, namespace string) {
	for _, allow := range []bool{true, false} {
		pod := script(namespace, "")
		pod.Name = fmt.Sprintf("allow-%t", allow)
		c := &pod.Spec.Containers[0]
		c.Image, c.Command = conformanceImage, []string{"/conformance", "euid"}
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr(int64(1000)), AllowPrivilegeEscalation: &allow}
		want := "1000"
		if allow {
			want = "0" // the binary is setuid: the test would see an escalation
		}
		prints(t, ctx, pod, want)
	}
}

func runAsNobody(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "id -u")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr(int64(65534))}
	prints(t, ctx, pod, "65534")
}

func unprivileged(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "ip link add dummy0 type dummy 2>&1 || true")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr(false)}
	if got := output(t, ctx, pod); !strings.Contains(got, "Operation not permitted") {
		t.Errorf("the container printed %q", got)
	}
}

func writableRoot(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo written > /file && cat /file")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr(false)}
	prints(t, ctx, pod, "written")
}

// sysctls returns the rows of sysctls.
func sysctls() []testcase {
	return []testcase{{id: "sysctl-applied", test: sysctlApplied}, {id: "sysctl-invalid-rejected", test: sysctlInvalid}}
}

func sysctlApplied(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "cat /proc/sys/kernel/shm_rmid_forced")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}}
	prints(t, ctx, pod, "1")
}

func sysctlInvalid(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "true")
	bad := []string{"foo-", "kernel.shmmax.", "safe-and-unsafe..", "Bad.Name"}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.shmmax", Value: "1"}}}
	for _, name := range bad {
		pod.Spec.SecurityContext.Sysctls = append(pod.Spec.SecurityContext.Sysctls, corev1.Sysctl{Name: name, Value: "1"})
	}
	_, err := admin.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	invalid(t, "malformed names of sysctls", err)
	for _, name := range bad {
		if !strings.Contains(fmt.Sprint(err), `"`+name+`"`) {
			t.Errorf("the error does not name %q: %v", name, err)
		}
	}
	if strings.Contains(fmt.Sprint(err), `"kernel.shmmax"`) {
		t.Errorf("the error names a valid sysctl: %v", err)
	}
}

// terminationMessages returns the rows of termination messages.
func terminationMessages() []testcase {
	row := func(text, want string, exit int32, change func(*corev1.Container)) func(*testing.T, context.Context, string) {
		return func(t *testing.T, ctx context.Context, namespace string) {
			pod := script(namespace, text)
			change(&pod.Spec.Containers[0])
			pod = podBecomes(t, ctx, create(t, ctx, pod), "ends", inPhase(corev1.PodSucceeded, corev1.PodFailed))
			end := pod.Status.ContainerStatuses[0].State.Terminated
			if end == nil || end.ExitCode != exit || strings.TrimSpace(end.Message) != want {
				t.Errorf("state.terminated is %+v, want the message %q", end, want)
			}
		}
	}
	fallback := func(c *corev1.Container) { c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError }
	return []testcase{
		{id: "terminationmessage-fallback-logs-error", test: row("echo DONE; exit 1", "DONE", 1, fallback)},
		{id: "terminationmessage-fallback-success-empty", test: row("echo DONE", "", 0, fallback)},
		{id: "terminationmessage-file-success", test: row("echo -n OK > /dev/termination-log; echo DONE", "OK", 0, fallback)},
		{id: "terminationmessage-nonroot-custom-path", test: row("echo -n DONE > /dev/termination-custom-log", "DONE", 0, func(c *corev1.Container) {
			c.TerminationMessagePath = "/dev/termination-custom-log"
			c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr(int64(1000))}
		})},
	}
}

// subPathExpressions returns the rows of subPathExpr.
func subPathExpressions() []testcase {
	return []testcase{
		{id: "subpathexpr-expand", test: subPathExpand},
		{id: "subpathexpr-backticks-fail", test: subPathFails("..")}, // the row's name means back steps
		{id: "subpathexpr-absolute-fails", test: subPathFails("/tmp")},
		{id: "subpathexpr-writes", test: subPathWrites},
		{id: "subpathexpr-fix-while-failing", test: subPathFixed},
	}
}

// expressed returns a pod with an emptyDir whose sub-directory $(SUB) is
// mounted at /sub, and the whole at /v.
func expressed(namespace, text string, sub corev1.EnvVar) *corev1.Pod {
	pod := script(namespace, text)
	mount(pod, "v", "/v", emptyDir(corev1.StorageMediumDefault))
	c := &pod.Spec.Containers[0]
	c.Env = []corev1.EnvVar{sub}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/sub", SubPathExpr: "$(SUB)"})
	return pod
}

func subPathExpand(t *testing.T, ctx context.Context, namespace string) {
	pod := expressed(namespace, "echo content > /sub/file && cat /v/script/file", field("SUB", "metadata.name"))
	prints(t, ctx, pod, "content")
}

// subPathFails wants the container not to start: the kubelet reports the
// expanded path as an error.
func subPathFails(sub string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := create(t, ctx, expressed(namespace, "true", corev1.EnvVar{Name: "SUB", Value: sub}))
		podBecomes(t, ctx, pod, "cannot start", cannotStart)
	}
}

func cannotStart(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) == 1 &&
		pod.Status.ContainerStatuses[0].State.Waiting != nil && pod.Status.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerConfigError"
}

func subPathWrites(t *testing.T, ctx context.Context, namespace string) {
	pod := expressed(namespace, "sleep 3600", field("SUB", "metadata.annotations['mysubpath']"))
	pod.Annotations = map[string]string{"mysubpath": "mypath"}
	pod = run(t, ctx, pod)
	exec(t, ctx, pod, "c", "touch", "/sub/file")
	exec(t, ctx, pod, "c", "test", "-f", "/v/mypath/file")
	updatePod(t, ctx, namespace, pod.Name, func(pod *corev1.Pod) { pod.Annotations["mysubpath"] = "mynewpath" })
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	gone(t, ctx, pod)
}

func subPathFixed(t *testing.T, ctx context.Context, namespace string) {
	pod := expressed(namespace, "sleep 3600", field("SUB", "metadata.annotations['mysubpath']"))
	pod.Annotations = map[string]string{"mysubpath": "/bad"}
	pod = create(t, ctx, pod)
	podBecomes(t, ctx, pod, "cannot start", cannotStart)
	_, err := admin.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"mysubpath":"mypath"}}}`), metav1.PatchOptions{})
	check(t, err)
	podBecomes(t, ctx, pod, "runs", inPhase(corev1.PodRunning))
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	gone(t, ctx, pod)
}
