package proxy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sliceWith returns a slice of serving pods and, if terminating is set, a terminating one.
func sliceWith(terminating types.UID, serving ...types.UID) *discoveryv1.EndpointSlice {
	yes, s := true, &discoveryv1.EndpointSlice{}
	if terminating != "" {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{UID: terminating}, Conditions: discoveryv1.EndpointConditions{Terminating: &yes}})
	}
	for _, uid := range serving {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{UID: uid}})
	}
	return s
}

func TestAwaited(t *testing.T) {
	for name, row := range map[string]struct {
		reason   string
		old, new *discoveryv1.EndpointSlice
		want     bool
	}{
		"New":         {"nobody waits for what comes", nil, sliceWith("", "a"), false},
		"Grows":       {"nor for what joins it", sliceWith("", "a"), sliceWith("", "a", "b"), false},
		"Terminates":  {"its kubelet waits", sliceWith("", "a"), sliceWith("a"), true},
		"Still":       {"its kubelet may have looked only now", sliceWith("a"), sliceWith("a", "b"), true},
		"Ended":       {"it had its word when it terminated", sliceWith("a", "b"), sliceWith("", "b"), false},
		"Unselected":  {"it may be terminating by now, and is in no slice", sliceWith("", "a"), sliceWith(""), true},
		"Deleted":     {"as with its Service", sliceWith("", "a"), nil, true},
		"DeletedBare": {"nobody is in it", sliceWith(""), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := awaited(row.old, row.new); got != row.want {
				t.Errorf("%t, want %t: %s", got, row.want, row.reason)
			}
		})
	}
}
