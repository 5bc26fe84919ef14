package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Extended resources for which devices of a claim stand are none of the node's.
func TestDevicesOfClaimsNeedNoExtendedResource(t *testing.T) {
	asks := func(claim bool) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/card": resource.MustParse("1")}},
		}}}}
		if claim {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "x", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "example.com/card", RequestName: "r"}},
			}
		}
		return p
	}
	for _, row := range []struct {
		pod, other *corev1.Pod
		cards      string
		reason     string
	}{
		{asks(false), asks(false), "2", ""},
		{asks(false), asks(false), "1", "OutOfexample.com/card"},
		{asks(true), asks(false), "1", ""},
		{asks(false), asks(true), "1", ""},
		{asks(true), asks(true), "0", ""},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9"), "example.com/card": resource.MustParse(row.cards)}}}
		got := ""
		if r := fits(row.pod, []*corev1.Pod{row.other}, node); r != nil {
			got = r.reason
		}
		if got != row.reason {
			t.Errorf("%s cards, claims %v beside %v: refused with %q, want %q", row.cards, row.pod.Status.ExtendedResourceClaimStatus, row.other.Status.ExtendedResourceClaimStatus, got, row.reason)
		}
	}
}
