package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"podium/pkg/cli/plan"
)

func gpuClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
}

// gpusOf returns the slice of a node with n devices.
func gpusOf(node string, n int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range n {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", i)})
	}
	return s
}

func wantsGPUs(n int64) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n,
	}}}}}
}

// withGPUs is a cluster of two nodes with a device each, and a template of claims for one.
func withGPUs() *plan.Cluster {
	return &plan.Cluster{
		Nodes: []*corev1.Node{machine("n1"), machine("n2")}, DeviceClasses: []*resourcev1.DeviceClass{gpuClass()},
		Slices: []*resourcev1.ResourceSlice{gpusOf("n1", 1), gpusOf("n2", 1)},
		ClaimTemplates: []*resourcev1.ResourceClaimTemplate{{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "ns"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: wantsGPUs(1)},
		}},
	}
}

// gpuPod returns a pod that uses a claim of the template.
func gpuPod(name string, priority int32) *corev1.Pod {
	p := sized(name, 1, priority)
	p.UID = types.UID(name)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}}
	return p
}

// running adds a pod on a node to the cluster, with the node's device.
func running(c *plan.Cluster, p *corev1.Pod, node string) {
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To(p.Name + "-gpu")}}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "o", UID: "o", Controller: ptr.To(true)}}
	c.Pods = append(c.Pods, p)
	c.DeviceClaims = append(c.DeviceClaims, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name + "-gpu", Namespace: "ns", ResourceVersion: "7",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: wantsGPUs(1),
		Status: resourcev1.ResourceClaimStatus{
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}},
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "r", Driver: "gpu.example.com", Pool: node, Device: "gpu-0",
			}}}},
		},
	})
}

// TestEachPodHasItsDevice: each pod gets a claim of the template, as long as there are devices.
func TestEachPodHasItsDevice(t *testing.T) {
	s := plan.New(withGPUs())
	got := map[string]string{}
	for _, p := range s.Place(gpuPod("p1", 0), gpuPod("p2", 0), gpuPod("p3", 0)) {
		got[p.Node], _, _ = strings.Cut(p.Reason, ". ")
	}
	want := map[string]string{"n1": "", "n2": "", "": "0/2 nodes are available: 2 cannot allocate all claims"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDevicesStandForExtendedResources: pods that ask for the resource get the devices of its class.
func TestDevicesStandForExtendedResources(t *testing.T) {
	c := withGPUs()
	c.DeviceClasses[0].Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	asks := func(name string) *corev1.Pod {
		p := sized(name, 1, 0)
		p.UID = types.UID(name)
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		return p
	}
	s := plan.New(c)
	got := map[string]string{}
	for _, p := range s.Place(asks("p1"), gpuPod("p2", 0), asks("p3")) {
		got[p.Node], _, _ = strings.Cut(p.Reason, ". ")
	}
	want := map[string]string{"n1": "", "n2": "", "": "0/2 nodes are available: 2 cannot allocate all claims"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestClaimsWithoutATemplateWait: no controller can make a claim of a template that does not exist.
func TestClaimsWithoutATemplateWait(t *testing.T) {
	c := withGPUs()
	c.ClaimTemplates = nil
	if got := plan.New(c).Place(gpuPod("p", 0))[0]; got.Node != "" {
		t.Errorf("the pod lands on %s", got.Node)
	}
}

// TestEvictedPodsFreeTheirDevices: the claim of a pod ends with it, and its replacement has one
// of its own.
func TestEvictedPodsFreeTheirDevices(t *testing.T) {
	for others, want := range map[int]string{0: "n2", 1: ""} {
		c := withGPUs()
		running(c, gpuPod("p1", 0), "n1")
		if others > 0 {
			running(c, gpuPod("p2", 0), "n2")
		}
		got, err := plan.Drain(c, "n1")
		if err != nil || len(got) != 1 || got[0].Lands == nil || got[0].Lands.Node != want {
			t.Errorf("%d pods elsewhere: %+v, %v", others, got, err)
		}
		s := plan.New(c)
		s.Remove(c.Pods[0])
		if got := s.Place(gpuPod("p3", 0))[0]; others > 0 && got.Node != "n1" {
			t.Errorf("the freed device is not used: %+v", got)
		}
	}
}

// TestUnusedClaimsAreFreed: the scheduler frees a claim that keeps its pod from other nodes, if
// no other pod uses it.
func TestUnusedClaimsAreFreed(t *testing.T) {
	for _, used := range []bool{false, true} {
		c := withGPUs()
		running(c, gpuPod("p1", 0), "n1")
		claim := c.DeviceClaims[0]
		claim.OwnerReferences, c.Pods = nil, nil
		claim.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
		}}}
		if !used {
			claim.Status.ReservedFor = nil
		}
		c.Nodes[0].Spec.Unschedulable = true
		p := sized("p2", 1, 0)
		p.UID = "p2"
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}
		got := plan.New(c).Place(p)[0]
		if want := map[bool]string{false: "n2", true: ""}[used]; got.Node != want {
			t.Errorf("used by another pod: %t: the pod lands on %q: %s", used, got.Node, got.Reason)
		}
		other := gpuPod("p1", 0)
		other.Spec.ResourceClaims = p.Spec.ResourceClaims
		s := plan.New(c)
		s.Remove(other)
		if got := s.Place(p)[0]; got.Node != "n2" {
			t.Errorf("after the end of the only user: %+v", got)
		}
	}
}
