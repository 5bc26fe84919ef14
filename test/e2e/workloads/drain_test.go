package workloads

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// Each worker is drained in turn while requests come: the budget holds at every instant, and
// no request is lost.
func TestDrainKeepsTheBudget(t *testing.T) {
	s := the.Space(t)
	s.Apply(web(9, "1", "1", "maxUnavailable: 2"))
	s.RolledOut("web", 2*time.Minute)
	keep(t, s.Pods, "app=web", func(pods map[types.UID]*corev1.Pod) error {
		if n := count(pods, healthy); n < 7 {
			return fmt.Errorf("%d pods are healthy, and the budget is 7 of 9", n)
		}
		return nil
	})
	l := startLoad(s, "web", 1)
	for _, worker := range workers {
		s.Podium(t, drainCommand(worker, "2m")...)
		isEmpty(s, worker)
		s.Podium(t, "uncordon", worker)
		s.RolledOut("web", 2*time.Minute)
	}
	l.lostNone(t)
}

// A budget that allows no disruption keeps a pod on its node, and the drain says so.
func TestDrainThatABudgetForbids(t *testing.T) {
	s := the.Space(t)
	s.Apply(web(1, "1", "0", "minAvailable: 1"))
	s.RolledOut("web", time.Minute)
	list, err := s.Pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	pod := list.Items[0]
	t.Cleanup(func() {
		if _, err := s.Try(context.Background(), "", "uncordon", pod.Spec.NodeName); err != nil {
			t.Error(err)
		}
	})
	_, err = s.Try(t.Context(), "", drainCommand(pod.Spec.NodeName, "10s")...)
	for _, want := range []string{pod.Name, "disruption budget"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the drain said %v, without %q", err, want)
		}
	}
	if now, err := s.Pods.Get(t.Context(), pod.Name); err != nil || now.UID != pod.UID || !healthy(now) {
		t.Errorf("the pod is not as before: %v", err)
	}
	// A second replica on another node lets it go.
	s.Podium(t, "scale", "-n", s.Namespace, "deployment/web", "--replicas", "2")
	s.RolledOut("web", time.Minute)
	s.Podium(t, drainCommand(pod.Spec.NodeName, "1m")...)
	docked.Eventually(t, 30*time.Second, "the pod is gone", func(ctx context.Context) error {
		now, err := s.Pods.Get(ctx, pod.Name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%v, %w", now, err)
	})
}

// isEmpty checks that a node runs no pods but those of DaemonSets.
func isEmpty(s *docked.Space, node string) {
	s.T.Helper()
	list, err := client.For[*corev1.Pod](s.API).List(s.T.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		s.T.Fatal(err)
	}
	for _, pod := range list.Items {
		if owner := metav1.GetControllerOf(pod); active(pod) && (owner == nil || owner.Kind != "DaemonSet") {
			s.T.Errorf("%s/%s is on %s, which was drained", pod.Namespace, pod.Name, node)
		}
	}
}

func drainCommand(node, timeout string) []string {
	return []string{"drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", timeout}
}
