package e2e

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/conditions"
)

// onPath returns a pod with a hostPath volume of a type.
func onPath(name, path, kind string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, hostPath: {path: %q, type: %q}}]
`, name, path, kind)
}

// A file system that stops answering stops only the pods that use it: the node stays Ready,
// other pods start and end, also under a kubelet that starts meanwhile, and the pods that
// wait for the file system go when it fails.
func TestHungMount(t *testing.T) {
	s, fs := newSpace(t), mountHungFS(t)
	s.apply(onPath("user", fs.dir, "Directory"))
	user := s.ready("user")
	other := s.sleeper("other")

	fs.hang()
	s.apply(onPath("checked", fs.dir, "Directory"))
	s.apply(onPath("mounted", fs.dir, ""))
	s.undisturbed(t, "first", other)
	s.pod("checked", "waits for its volume", waits("ContainerCreating"))

	the.kill(t, "kubelet")
	if err := the.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.undisturbed(t, "second", s.sleeper("more"))
	s.pod("mounted", "waits for the runtime", waits("CreateContainerError")) // which still has the call of the killed kubelet

	// The process of this one does not use the file system.
	if err := in[*corev1.Pod](s).Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.goes(user)
	for _, name := range []string{"checked", "mounted"} {
		if err := in[*corev1.Pod](s).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	fs.end(t) // the pods must go with their space
}

// A runtime that stops answering makes the node not ready within a minute, and nothing else:
// when it answers again, the containers are the same, and what was asked for meanwhile is done.
func TestHungRuntime(t *testing.T) {
	s := newSpace(t)
	before := s.sleeper("before")
	pid := the.containerPID(t, before)
	runtime := the.pid(t, "containerd")
	resume := sync.OnceFunc(func() { _ = syscall.Kill(runtime, syscall.SIGCONT) })
	t.Cleanup(resume)
	if err := syscall.Kill(runtime, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.apply(box("during", "sleep 3600"))
	s.nodeIs(corev1.ConditionFalse, "container runtime is down")
	resume()
	s.nodeIs(corev1.ConditionTrue, "kubelet is posting ready status")
	s.ready("during")
	if now := s.ready("before"); the.containerPID(t, now) != pid || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod from before is not as it was: %s", describe(now))
	}
}

// nodeIs waits for the status and message of the node's Ready condition.
func (s *space) nodeIs(status corev1.ConditionStatus, message string) {
	s.Helper()
	eventually(s.T, 90*time.Second, fmt.Sprintf("the node's Ready is %s: %s", status, message), func() error {
		node, err := client.For[*corev1.Node](s.api).Get(s.Context(), "node-a")
		if err != nil {
			return err
		}
		ready := conditions.Find(node.Status.Conditions, corev1.NodeReady)
		if ready == nil || ready.Status != status || ready.Message != message {
			return fmt.Errorf("it is %+v", ready)
		}
		return nil
	})
}

// sleeper creates a pod that sleeps and waits until it is Ready.
func (s *space) sleeper(name string) *corev1.Pod {
	s.Helper()
	s.apply(box(name, "sleep 3600"))
	return s.ready(name)
}

// undisturbed checks that the node works: it renews its Lease, answers statistics, ends one
// pod and starts another.
func (s *space) undisturbed(t *testing.T, name string, ends *corev1.Pod) {
	t.Helper()
	leases := client.For[*coordinationv1.Lease](s.api).In("kube-node-lease")
	before, err := leases.Get(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	s.sleeper(name)
	if err := in[*corev1.Pod](s).Delete(t.Context(), ends.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.goes(ends)
	if _, _, err := s.api.Do(t.Context(), client.Request{Path: "/api/v1/nodes/node-a/proxy/stats/summary"}); err != nil {
		t.Errorf("statistics: %v", err)
	}
	eventually(t, time.Minute, "the node renews its Lease", func() error {
		now, err := leases.Get(t.Context(), "node-a")
		if err == nil && !now.Spec.RenewTime.After(before.Spec.RenewTime.Time) {
			err = fmt.Errorf("renewed at %v", now.Spec.RenewTime)
		}
		return err
	})
	s.nodeIs(corev1.ConditionTrue, "kubelet is posting ready status")
}
