package dynamicresources_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheduler/framework/frameworktest"
	"podium/pkg/scheduler/plugins/dynamicresources"
)

// The cluster has what random pods name: the claims a and b, and a class for the extended resource.
func TestDeclaresWhatItReads(t *testing.T) {
	p := dynamicresources.New(nil, func(string) *corev1.Node { return nil })
	for class, resource := range map[string]*string{"a": new("example.com/device"), "b": nil} {
		p.OnClass(nil, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: resource}})
	}
	for i := range 8 {
		name := fmt.Sprint("n", i)
		s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: "cards.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		}}
		for k := range i % 4 {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("card-", k)})
		}
		p.OnSlice(nil, s)
	}
	for i, key := range []string{"aa", "ab", "ba", "bb"} {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key[:1], Name: key[1:], ResourceVersion: "1"}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: key[1:], AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(1 + i%2),
		}}}
		if key == "bb" {
			c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
			}}}}
		}
		p.OnClaim(nil, c)
	}
	frameworktest.CheckReads(t, p)
}
