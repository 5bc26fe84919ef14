package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheduler"
)

// TestPodsThatTerminateAnywayDelayNoPreemption takes the room of a nominated pod for a more
// important one. Another pod of its node terminates, for an hour, because a user has deleted it: the
// pod is nominated for another node.
func TestPodsThatTerminateAnywayDelayNoPreemption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := realWorld(t)
		pods := client.For[*corev1.Pod](c).In("default")
		for _, value := range []int32{1, 10, 20} {
			if _, err := client.For[*schedulingv1.PriorityClass](c).Create(t.Context(), &schedulingv1.PriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", value)}, Value: value,
			}); err != nil {
				t.Fatal(err)
			}
		}
		create := func(name, class, node string) {
			t.Helper()
			p := realPod(name, "1")
			p.Spec.PriorityClassName, p.Spec.NodeName = class, node
			if _, err := pods.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			settle()
		}
		remove := func(name string, grace int64) {
			t.Helper()
			if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
				t.Fatal(err)
			}
			settle()
		}
		nominated := func(want, when string) {
			t.Helper()
			if p, err := pods.Get(t.Context(), "vip"); err != nil || p.Status.NominatedNodeName != want {
				t.Errorf("%s: nominated %q, want %q (%v)", when, p.Status.NominatedNodeName, want, err)
			}
		}
		addNode(t, c, node("a", "2", "4Gi"))
		stop := run(t, scheduler.Config{Client: c})
		create("victim", "", "")
		create("slow", "p1", "")
		create("vip", "p10", "")
		nominated("a", "with a node")
		create("other", "", "b")
		addNode(t, c, node("b", "1", "4Gi"))
		remove("slow", 3600)
		nominated("a", "while its victim terminates")
		create("boss", "p20", "a")
		remove("victim", 0)
		nominated("b", "when the room is taken")
		remove("other", 0)
		if p, err := pods.Get(t.Context(), "vip"); err != nil || p.Spec.NodeName != "b" {
			t.Errorf("vip is on %q (%v)", p.Spec.NodeName, err)
		}
		stop()
	})
}
