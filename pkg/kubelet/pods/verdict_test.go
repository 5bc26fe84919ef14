package pods

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri/crifake"
)

// A pod gets its final phase when its containers have stopped, not when its grace period
// begins. It is not ready meanwhile.
func TestFinalPhaseWaitsForTheContainers(t *testing.T) {
	deaf := crifake.Config{Behave: func(crifake.Start) crifake.Behaviour { return crifake.Behaviour{Deaf: true} }}
	for name, c := range map[string]struct {
		end    func(r *rig, p *corev1.Pod)
		reason string
		target bool // the condition DisruptionTarget
	}{
		"deadline": {reason: "DeadlineExceeded", end: func(r *rig, p *corev1.Pod) {
			r.api.change("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(15)) })
		}},
		"shutdown": {reason: "Terminated", target: true, end: func(r *rig, p *corev1.Pod) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r.manager.Terminate(ctx, p, 45*time.Second) // does not wait
		}},
		"eviction": {reason: "Evicted", target: true, end: func(r *rig, p *corev1.Pod) {
			w := r.manager.workers[p.UID]
			w.post(func() { w.evict(eviction{message: "low", condition: disrupted("low"), grace: ptr(30 * time.Second)}) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, deaf, func(r *rig) {
				r.api.create(newPod("a"))
				r.pass(2 * time.Second)
				if p := r.pod("a"); !conditions.IsTrue(p.Status.Conditions, corev1.PodReady) {
					r.t.Fatalf("status is %+v", p.Status)
				}
				c.end(r, r.pod("a"))
				r.pass(18 * time.Second)
				s := r.pod("a").Status
				if ready := conditions.Find(s.Conditions, corev1.PodReady); ready.Status != corev1.ConditionFalse || ready.Reason != "PodFailed" {
					r.t.Errorf("while it stops it is %+v", ready)
				}
				if s.Phase != corev1.PodRunning || s.Reason != "" || s.Message != "" || conditions.Find(s.Conditions, corev1.DisruptionTarget) != nil {
					r.t.Errorf("while it stops its status is %+v", s)
				}
				r.pass(27 * time.Second)
				s = r.pod("a").Status
				if s.Phase != corev1.PodFailed || s.Reason != c.reason || s.ContainerStatuses[0].State.Terminated == nil || conditions.IsTrue(s.Conditions, corev1.DisruptionTarget) != c.target {
					r.t.Errorf("in the end its status is %+v", s)
				}
			})
		})
	}
}
