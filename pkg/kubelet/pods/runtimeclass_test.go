package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// The runtime gets the handler of the pod's RuntimeClass. A pod whose class is gone
// does not start with another one.
func TestRuntimeClassSelectsTheHandler(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		for name, class := range map[string]*string{"default": nil, "isolated": new("vm"), "orphan": new("gone")} {
			p := newPod(name)
			p.Spec.RuntimeClassName = class
			r.api.create(p)
		}
		r.pass(5 * time.Second)
		list, err := r.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range list.Items {
			got[s.Metadata.Name] = s.RuntimeHandler
		}
		if len(got) != 2 || got["default"] != "" || got["isolated"] != "kata" {
			t.Errorf("sandboxes with the handlers %v", got)
		}
		const want = `Failed to create pod sandbox: get the handler of RuntimeClass "gone": runtimeclasses.node.k8s.io "gone" not found`
		if events := r.api.eventsOf("FailedCreatePodSandBox"); len(events) == 0 || events[0] != want {
			t.Errorf("events %q", events)
		}
		if phase := r.pod("orphan").Status.Phase; phase != corev1.PodPending {
			t.Errorf("the pod without a handler is %s", phase)
		}
	})
}
