package poll_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cluster/poll"
)

func TestNodeReady(t *testing.T) {
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		want       string
	}{
		"Silent": {nil, "the kubelet has not reported yet"},
		"Ready":  {[]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, "<nil>"},
		"Not":    {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no CNI"}}, "KubeletNotReady: no CNI"},
		"Lost":   {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "gone"}}, "NodeStatusUnknown: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(poll.NodeReady(&corev1.Node{Status: corev1.NodeStatus{Conditions: tc.conditions}})); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
