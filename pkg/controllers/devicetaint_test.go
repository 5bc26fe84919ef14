package controllers_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// withDevice creates a pod and its claim, which has a device with these tolerations.
func (c *cluster) withDevice(name, device string, tolerations ...resourcev1.DeviceToleration) {
	c.t.Helper()
	claim := create(c, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{resourcev1.Finalizer}}, Spec: gpuTemplate("").Spec.Spec})
	pod := gpuPod(name, "")
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &name}
	pod = create(c, pod)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: "gpu.example.com", Pool: "node-0", Device: device, Tolerations: tolerations},
	}}}
	if !c.allocate(claim, pod) {
		c.t.Fatal("the claim was not allocated")
	}
}

func (c *cluster) slice(generation int64, taints map[string][]resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: new("node-0"), Pool: resourcev1.ResourcePool{Name: "node-0", Generation: generation, ResourceSliceCount: 1},
	}}
	for _, name := range []string{"gpu-0", "gpu-1", "gpu-2"} {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name, Taints: taints[name]})
	}
	return s
}

func (c *cluster) taintRule(effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Pool: new("node-0")},
		Taint:          resourcev1.DeviceTaint{Key: "broken", Effect: effect},
	}}
}

// inProgress returns the rule's condition: status, reason, message.
func (c *cluster) inProgress() string {
	rule, err := client.For[*resourcev1.DeviceTaintRule](c.Client).Get(c.t.Context(), "broken")
	if err != nil {
		return err.Error()
	}
	e := meta.FindStatusCondition(rule.Status.Conditions, "EvictionInProgress")
	if e == nil {
		return ""
	}
	return strings.TrimSpace(string(e.Status) + " " + e.Reason + " " + e.Message)
}

func (c *cluster) left() (names string) {
	for _, p := range c.pods("") {
		names += p.Name
	}
	return names
}

func TestDeviceTaintRulesEvict(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, c.slice(1, nil))
		exists := resourcev1.DeviceToleration{Key: "broken", Operator: resourcev1.DeviceTolerationOpExists}
		minute, schedule := exists, exists
		minute.TolerationSeconds, schedule.Effect = new(int64(60)), resourcev1.DeviceTaintEffectNoSchedule
		c.withDevice("a", "gpu-0")
		c.withDevice("b", "gpu-1", minute)
		c.withDevice("c", "gpu-2", exists)
		c.withDevice("d", "gpu-0", schedule)

		create(c, c.taintRule(resourcev1.DeviceTaintEffectNone))
		says := func(want string) {
			t.Helper()
			c.until(time.Minute, "the rule says "+want, func() bool { return c.inProgress() == want })
		}
		says("False NoEffect 3 published devices selected. 3 allocated devices selected. 3 pods would be evicted in 1 namespace if the effect was NoExecute. " +
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.")
		set := func(effect resourcev1.DeviceTaintEffect) {
			mergePatch[*resourcev1.DeviceTaintRule](c, "broken", map[string]any{"spec": map[string]any{"taint": map[string]any{"effect": effect}}})
		}
		set(resourcev1.DeviceTaintEffectNoSchedule)
		says("False EffectNoSchedule")
		if got := c.left(); got != "abcd" {
			t.Errorf("without the effect the pods %s are left", got)
		}

		set(resourcev1.DeviceTaintEffectNoExecute)
		began := time.Now()
		c.until(5*time.Second, "pods without a toleration are gone", func() bool { return c.left() == "bc" })
		says("True PodsPendingEviction 1 pod needs to be evicted in 1 namespace. 2 pods evicted since starting the controller.")
		c.until(2*time.Minute, "the toleration is over", func() bool { return c.left() == "c" })
		if after := time.Since(began); after < 59*time.Second || after > 65*time.Second {
			t.Errorf("a pod that tolerates the taint for a minute was evicted after %s", after)
		}
		says("False Completed 3 pods evicted since starting the controller.")
		if !c.event("DeviceTaintManagerEviction") {
			t.Error("no event")
		}
		remove[*resourcev1.DeviceTaintRule](c, "broken", metav1.DeletePropagationBackground)
		c.quiet()
		if got := c.left(); got != "c" {
			t.Errorf("the pods %s are left", got)
		}
	})
}

func TestTaintsOfSlicesEvict(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		broken := []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute}}
		create(c, c.slice(2, map[string][]resourcev1.DeviceTaint{"gpu-1": broken}))
		old := c.slice(1, map[string][]resourcev1.DeviceTaint{"gpu-0": broken})
		old.Name = "old" // its driver has replaced it
		create(c, old)
		c.withDevice("a", "gpu-0")
		c.withDevice("b", "gpu-1")
		c.withDevice("c", "gpu-9") // no longer published
		c.until(5*time.Second, "the pod with the tainted device is gone", func() bool { return c.left() == "ac" })
		slices := client.For[*resourcev1.ResourceSlice](c.Client)
		now, err := slices.Get(t.Context(), "gpus")
		if err != nil {
			t.Fatal(err)
		}
		now.Spec.Devices[0].Taints = broken
		if _, err := slices.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		c.until(5*time.Second, "the pod is gone when the driver taints its device", func() bool { return c.left() == "c" })
		c.quiet()
		if claim := c.resourceClaim("a"); claim.Status.Allocation != nil || len(claim.Status.ReservedFor) > 0 {
			t.Errorf("the claim of a pod that was evicted: %+v", claim.Status)
		}
	})
}
