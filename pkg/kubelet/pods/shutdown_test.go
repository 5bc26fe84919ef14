package pods

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri/crifake"
)

// A pod that ends because its node shuts down fails, within the period that it gets; a
// pod that comes meanwhile is rejected.
func TestShutdownEndsPods(t *testing.T) {
	down := false
	deaf := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: true} }}
	bubbleWith(t, deaf, func(r *rig) {
		r.tweak = func(c *Config) { c.ShuttingDown = func() bool { return down } }
	}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(2 * time.Second)
		down = true
		began := time.Now()
		r.manager.Terminate(context.Background(), r.pod("a"), 5*time.Second)
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("it took %v to end", took)
		}
		s := r.pod("a").Status
		if s.Phase != corev1.PodFailed || s.Reason != "Terminated" || s.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("pod is %+v", s)
		}
		if c := conditions.Find(s.Conditions, corev1.DisruptionTarget); c == nil || c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
			t.Errorf("condition %+v", c)
		}
		r.api.create(newPod("b"))
		r.pass(time.Second)
		if s := r.pod("b").Status; s.Phase != corev1.PodFailed || s.Reason != "NodeShutdown" || s.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
			t.Errorf("pod is %+v", s)
		}
		r.manager.Terminate(context.Background(), r.pod("a"), time.Hour) // it has ended
	})
}
