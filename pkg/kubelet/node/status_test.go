package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources of device plugins become 0 when the plugin is gone; resources that an
// administrator has added to the node stay.
func TestResourcesOfDevicePlugins(t *testing.T) {
	list := func(quantities ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(quantities); i += 2 {
			out[corev1.ResourceName(quantities[i])] = resource.MustParse(quantities[i+1])
		}
		return out
	}
	capacity, allocatable := list("example.com/gpu", "4"), list("example.com/gpu", "3")
	a := &Agent{cfg: Config{
		Capacity: func() corev1.ResourceList { return list("cpu", "2") },
		Devices:  func() (_, _ corev1.ResourceList) { return capacity, allocatable },
	}}
	s := corev1.NodeStatus{Capacity: list("example.com/manual", "5")}
	check := func(name corev1.ResourceName, all, free string) {
		t.Helper()
		have, left := s.Capacity[name], s.Allocatable[name]
		if have.String() != all || left.String() != free {
			t.Errorf("%s: %s of %s, want %s of %s", name, left.String(), have.String(), free, all)
		}
	}
	a.fillResources(&s)
	check("example.com/gpu", "4", "3")
	check("example.com/manual", "5", "5")
	capacity, allocatable = list("example.com/gpu", "0"), list("example.com/gpu", "0")
	a.fillResources(&s)
	check("example.com/gpu", "0", "0")
	check("example.com/manual", "5", "5")
	check("cpu", "2", "2")
}
