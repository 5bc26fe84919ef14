package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webOf returns a Deployment of the web image and its Service.
func webOf(replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: localhost/podium/web:v1
          ports: [{name: http, containerPort: 8080}]
          readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`, replicas)
}

// box returns a pod of busybox that runs a shell command.
func box(name, command string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: box, image: localhost/podium/busybox:v1, command: [sh, -c, %q]}
`, name, command)
}

func TestScale(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(3))
	node := fromNode(t, false)
	for _, replicas := range []int{3, 10, 0} {
		s.scale("web", replicas)
		s.rolledOut("web")
		if replicas > 0 {
			node.answers(t, s.url("web"), replicas)
			continue
		}
		eventually(t, 10*time.Second, "a Service without endpoints refuses", func() error {
			if body, err := node.get(s.url("web")); err == nil {
				return fmt.Errorf("%s has answered", body)
			} else if !strings.Contains(err.Error(), "refused") {
				return err
			}
			return nil
		})
	}
}

// A container whose process is killed is restarted: at once the first time, then after 10 s, then
// after 20 s; meanwhile its status reports the back-off.
func TestKilledContainerComesBack(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(box("victim", "sleep 3600"))
	victim := s.ready("victim")
	kill := func() (at time.Time) {
		t.Helper()
		if err := syscall.Kill(the.containerPID(t, victim), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}

	killed := kill()
	victim = s.pod("victim", "runs again", restarted(1))
	if took := time.Since(killed); took >= 10*time.Second {
		t.Errorf("the first restart took %v, as long as a back-off", took)
	}
	if last := victim.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
		t.Errorf("the last state is %+v, want the exit code 137", last)
	}

	killed = kill()
	victim = s.pod("victim", "backs off", waits("CrashLoopBackOff"))
	if got := victim.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(got, "back-off 10s restarting failed container=box pod=victim_"+s.name) {
		t.Errorf("it waits with the message %q", got)
	}
	victim = s.pod("victim", "runs again", restarted(2))
	if took := time.Since(killed); took < 9*time.Second || took >= 20*time.Second {
		t.Errorf("the second restart took %v, want more than its back-off of 10 s, and less than the next one", took)
	}

	kill()
	victim = s.pod("victim", "backs off for longer", waits("CrashLoopBackOff"))
	if got := victim.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(got, "back-off 20s ") {
		t.Errorf("the third time it waits with the message %q", got)
	}
	s.said("victim", "BackOff", "Back-off restarting failed container")
}

func TestDeletedPodIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(2))
	s.rolledOut("web")
	gone := s.pods("app=web")[0]
	if err := in[*corev1.Pod](s).Delete(t.Context(), gone.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.goes(gone)
	s.rolledOut("web")
	for _, name := range fromNode(t, false).answers(t, s.url("web"), 2) {
		if name == gone.Name {
			t.Errorf("%s still answers", name)
		}
	}
}

// An eviction, as kubectl drain requests it: the pod is deleted, and its Deployment creates another
// one, which waits while the node is cordoned.
func TestDrain(t *testing.T) {
	s := newSpace(t)
	s.apply(webOf(1))
	s.rolledOut("web")
	old := s.pods("app=web")[0]
	kubectl := func(args ...string) { the.run(t, "", the.bin("peers/kubectl"), args...) }
	t.Cleanup(func() { the.try(t.Context(), "", the.bin("peers/kubectl"), "uncordon", "node-a") })
	kubectl("-n", s.name, "drain", "node-a", "--pod-selector=app=web", "--timeout=60s")
	if _, err := in[*corev1.Pod](s).Get(t.Context(), old.Name); !apierrors.IsNotFound(err) {
		t.Errorf("the evicted pod: %v", err)
	}
	next := s.pods("app=web")[0]
	s.said(next.Name, "FailedScheduling", "0/1 nodes are available: 1 node(s) were unschedulable")
	kubectl("uncordon", "node-a")
	s.rolledOut("web")
}
