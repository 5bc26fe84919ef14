package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods are terminated only after the proxies have removed them: a rolling update loses no
// request, although the program exits at once on SIGTERM and has no preStop hook that sleeps.
func TestRollingUpdateLosesNoRequest(t *testing.T) {
	s := newSpace(t)
	s.apply(webOf(3) + "\n---\n" + box("client", "sleep 3600"))
	client := s.ready("client")
	s.rolledOut("web")
	fromNode(t, false).answers(t, s.url("web"), 3)
	all := startLoads(t, s.url("web"), client)
	all.more(t, 20)

	for i, step := range []struct{ name, strategy string }{
		{"maxUnavailable 0", `{"maxUnavailable":0,"maxSurge":1}`},
		{"maxUnavailable 1", `{"maxUnavailable":1,"maxSurge":0}`},
		{"both, in percent", `{"maxUnavailable":"50%","maxSurge":"50%"}`},
	} {
		begin := time.Now()
		s.patch("web", fmt.Sprintf(`{"spec":{"strategy":{"rollingUpdate":%s},"template":{"metadata":{"annotations":{"turn":"%d"}}}}}`, step.strategy, i))
		s.rolledOut("web")
		t.Logf("a rollout of 3 with %s took %v", step.name, time.Since(begin).Round(time.Millisecond))
		all.more(t, 20)
	}
	for _, replicas := range []int{6, 2, 1} {
		s.scale("web", replicas)
		s.rolledOut("web")
		all.more(t, 20)
	}
	all.lostNone(t)
}

// The wait for the proxies ends with their confirmation, long before its deadline.
func TestTerminationIsQuick(t *testing.T) {
	s := newSpace(t)
	s.apply(webOf(4))
	s.rolledOut("web")
	var slowest time.Duration
	for _, pod := range s.pods("app=web") {
		begin := time.Now()
		if err := in[*corev1.Pod](s).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.goes(pod)
		took := time.Since(begin)
		slowest = max(slowest, took)
		t.Logf("a ready pod of a Service was gone %v after its deletion", took.Round(time.Millisecond))
		s.rolledOut("web")
	}
	if slowest > 3*time.Second {
		t.Errorf("the slowest took %v: the deadline of 5 s, not the proxy's word, seems to have ended the wait", slowest)
	}
}
