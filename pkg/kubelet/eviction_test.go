package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Hard thresholds of memory and of the node's disk are kept from pods, beside what is reserved.
func TestAllocatableReservation(t *testing.T) {
	e := &evictionFlags{
		hard: []string{"memory.available<100Mi", "nodefs.available<10%", "nodefs.inodesFree<5%", "imagefs.available<15%", "pid.available<10%"},
		soft: []string{"memory.available<1Gi"}, softGrace: map[string]string{"memory.available": "1m"},
	}
	reserved := list(map[corev1.ResourceName]string{"cpu": "1", "memory": "1Gi"})
	got := e.allocatableReservation(reserved, list(map[corev1.ResourceName]string{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi"}))
	for name, want := range map[corev1.ResourceName]string{"cpu": "1", "memory": "1124Mi", "ephemeral-storage": "10Gi"} {
		if q := got[name]; q.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s is %s, want %s", name, q.String(), want)
		}
	}
	if len(got) != 3 || reserved.Memory().String() != "1Gi" {
		t.Errorf("got %v, and the reserved resources are now %v", got, reserved)
	}
	if none := (&evictionFlags{}).allocatableReservation(nil, nil); len(none) != 0 {
		t.Errorf("nothing is reserved, got %v", none)
	}
}

func list(amounts map[corev1.ResourceName]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range amounts {
		out[name] = resource.MustParse(amount)
	}
	return out
}
