package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/cri/crifake"
)

func TestPodRunsAndIsDeleted(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(0)
		p := r.pod("a")
		if p.Status.Phase != corev1.PodRunning || !conditionTrue(&p.Status, corev1.PodReady) || p.Status.PodIP == "" || p.Status.HostIP != "192.0.2.1" {
			t.Fatalf("status is %+v", p.Status)
		}
		r.api.deleteGracefully("a", 30)
		r.pass(time.Second)
		if !r.gone("a") {
			t.Fatalf("still there: %+v", r.pod("a"))
		}
		want := []string{
			"RunPodSandbox a", "CreateContainer a/app", "StartContainer a/app", "StopContainer a/app",
			"StopPodSandbox a", "RemoveContainer a/app", "RemovePodSandbox a",
		}
		if diff := cmp.Diff(want, r.calls("")); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"patch a Pending", "patch a Running", "patch a Succeeded", "delete a"}, r.api.log); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}
