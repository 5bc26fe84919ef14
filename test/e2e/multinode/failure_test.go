package multinode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// lost is how long the controllers may take to consider a node lost: upstream's grace period of
// 50 seconds, and a margin.
const lost = 90 * time.Second

// nodeIs waits until a node is Ready or, if ready is false, not Ready.
func (s *space) nodeIs(name string, ready bool, patience time.Duration) {
	s.T.Helper()
	docked.Eventually(s.T, patience, fmt.Sprintf("%s Ready: %t", name, ready), func(ctx context.Context) error {
		n, err := client.For[*corev1.Node](s.API).Get(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionTrue) == ready {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", n.Status.Conditions)
	})
}

// onlyOn waits until a deployment's pods are all ready and on one node.
func (s *space) onlyOn(app, node string, replicas int, patience time.Duration) {
	s.T.Helper()
	docked.Eventually(s.T, patience, fmt.Sprintf("%d pods of %s run on %s only", replicas, app, node), func(ctx context.Context) error {
		list, err := s.Pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				continue
			}
			if p.Spec.NodeName != node {
				return fmt.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != replicas {
			return fmt.Errorf("%d of %d are ready", ready, replicas)
		}
		return nil
	})
}

// A worker loses its power: its pods start elsewhere after their toleration, and the Service
// answers on the remaining nodes. When the worker comes back, the moved pods are deleted there.
func TestALostWorkersPodsMove(t *testing.T) {
	s := the.space(t)
	s.Apply(web)
	s.RolledOut("web", time.Minute)
	s.Podium(t, "cluster", "node", "stop", "--now", worker1)
	t.Cleanup(func() {
		if _, err := the.Try(context.Background(), "", "cluster", "node", "start", worker1); err != nil {
			t.Error(err)
		}
		s.nodeIs(worker1, true, time.Minute)
	})
	s.nodeIs(worker1, false, lost)
	s.onlyOn("web", worker2, 2, 30*time.Second)
	port := s.NodePort("web")
	for _, node := range []string{plane, worker2} {
		docked.Eventually(t, 10*time.Second, "the Service answers by "+node, func(ctx context.Context) error {
			for range 10 { // no request goes to a dead endpoint
				if _, err := get(ctx, s.Address(node), port); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s.Podium(t, "cluster", "node", "start", worker1)
	s.nodeIs(worker1, true, time.Minute)
	docked.Eventually(t, 30*time.Second, "the pods that were moved are forgotten", func(ctx context.Context) error {
		list, err := s.Pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("there are %d pods", len(list.Items))
		}
		return err
	})
}

// named is a pod with a process that is recognizable in a node's process list. It tolerates a
// lost node for seconds only, so its deletion is soon requested.
const named = `
apiVersion: v1
kind: Pod
metadata: {name: named}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  tolerations:
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
  containers: [{name: c, image: "localhost/podium/busybox:v1", imagePullPolicy: Never, command: [sleep, "424242"]}]
`

// runs reports whether that pod's container runs on a node, which may be disconnected.
func runs(ctx context.Context, node string) (bool, error) {
	out, err := docked.Docker(ctx, "exec", node, "sh", "-c", "pgrep -fc '^sleep 424242' || true")
	return out != "0", err
}

// A worker is disconnected. Pods that tolerate that keep running, unchanged when the worker is
// reconnected. Other pods are deleted, but their names stay in use until the worker has
// terminated them: a client that retries to create such a pod elsewhere succeeds only then, and
// the pod of that name never runs twice.
func TestAPartitionedWorkerComesBack(t *testing.T) {
	s := the.space(t)
	s.Apply(pinned("fixed", worker2, "localhost/podium/busybox:v1", "sh", "-c", "while true; do date +%s; sleep 1; done"))
	s.Apply(fmt.Sprintf(named, worker2))
	before, first := s.Ready("fixed"), s.Ready("named")
	s.Podium(t, "cluster", "node", "partition", worker2)
	t.Cleanup(func() {
		if _, err := the.Try(context.Background(), "", "cluster", "node", "heal", worker2); err != nil {
			t.Error(err)
		}
		s.nodeIs(worker2, true, time.Minute)
	})
	again := s.makeAgain(first, worker1)
	s.nodeIs(worker2, false, lost)
	docked.Eventually(t, 10*time.Second, "its pods count as unready", func(ctx context.Context) error {
		p, err := s.Pods.Get(ctx, "fixed")
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", p.Status.Conditions)
	})
	docked.Eventually(t, 20*time.Second, "the one that does not tolerate it is told to end", func(ctx context.Context) error {
		p, err := s.Pods.Get(ctx, "named")
		if err == nil && (p.UID != first.UID || p.DeletionTimestamp == nil) {
			err = fmt.Errorf("it is %s (at first %s), to end at %v", p.UID, first.UID, p.DeletionTimestamp)
		}
		return err
	})
	running, err := docked.Docker(t.Context(), "exec", worker2, "sh", "-c", "ctr -n k8s.io tasks ls | grep -c RUNNING")
	if err != nil || running == "0" {
		t.Errorf("on the node that is cut off %s containers run, %v: they must go on", running, err)
	}
	if still, err := runs(t.Context(), worker2); err != nil || !still {
		t.Errorf("the pod that must end does so without having been told (%v)", err)
	}
	select {
	case err := <-again:
		t.Errorf("the name was free before the node had ended the pod (%v)", err)
	default:
	}
	s.Podium(t, "cluster", "node", "heal", worker2)
	s.nodeIs(worker2, true, time.Minute)
	after := s.Ready("fixed")
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod is another (%s, before %s) or was restarted %d times", after.UID, before.UID, after.Status.ContainerStatuses[0].RestartCount)
	}
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	if p := s.Ready("named"); p.UID == first.UID || p.Spec.NodeName != worker1 {
		t.Errorf("the pod made anew is %s (before %s) on %s", p.UID, first.UID, p.Spec.NodeName)
	}
}

// makeAgain creates a pod again on another node as soon as its name is free. It sends nil when
// the new pod runs, or an error, for example if both ran.
func (s *space) makeAgain(first *corev1.Pod, node string) <-chan error {
	ctx, cancel := context.WithTimeout(s.T.Context(), 3*time.Minute)
	s.T.Cleanup(cancel)
	result := make(chan error, 1)
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: first.Name}, Spec: *first.Spec.DeepCopy()}
	next.Spec.NodeName = node
	go func() {
		for {
			_, err := s.Pods.Create(ctx, next)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				result <- err
				return
			}
			// The new one first: the old one does not start again in between.
			there, err := runs(ctx, node)
			if err == nil && !there {
				continue
			}
			still, err2 := runs(ctx, first.Spec.NodeName)
			if still {
				err = fmt.Errorf("pod %s runs on %s and on %s", first.Name, first.Spec.NodeName, node)
			}
			result <- errors.Join(err, err2)
			return
		}
	}()
	return result
}

// A frozen worker is lost like a dead one; when it thaws, its pods are unchanged.
func TestAPausedWorkerThaws(t *testing.T) {
	s := the.space(t)
	s.Apply(pinned("fixed", worker2, "localhost/podium/busybox:v1", "sleep", "1000"))
	before := s.Ready("fixed")
	s.Podium(t, "cluster", "node", "pause", worker2)
	t.Cleanup(func() { // also if the test ends while it is frozen; calling it twice is allowed
		if _, err := the.Try(context.Background(), "", "cluster", "node", "start", worker2); err != nil {
			t.Error(err)
		}
		s.nodeIs(worker2, true, time.Minute)
	})
	state, err := docked.Docker(t.Context(), "inspect", "--format", "{{.State.Status}}", worker2)
	if err != nil || state != "paused" {
		t.Errorf("the node is %q, %v: want paused", state, err)
	}
	s.nodeIs(worker2, false, lost)
	s.Podium(t, "cluster", "node", "start", worker2)
	s.nodeIs(worker2, true, time.Minute)
	if after := s.Ready("fixed"); after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the pod did not survive")
	}
}
