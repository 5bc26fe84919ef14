package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestACloudsNode(t *testing.T) {
	ip := func(text string) []corev1.NodeAddress {
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: text}}
	}
	own, clouds := ip("192.0.2.1"), ip("192.0.2.2")
	told, untold := &Cloud{ProvidedIPs: []string{"192.0.2.1", "2001:db8::1"}}, &Cloud{}
	for name, tc := range map[string]struct {
		reason     string
		cloud      *Cloud
		have, want []corev1.NodeAddress
	}{
		"None":     {"the kubelet's own count", nil, clouds, own},
		"Told":     {"somebody has said that it will be this one", told, nil, own},
		"Untold":   {"nobody knows yet", untold, nil, nil},
		"Spoken":   {"the cloud has said what they are", told, clouds, clouds},
		"SpokenTo": {"the same", untold, clouds, clouds},
	} {
		if d := cmp.Diff(tc.want, tc.cloud.addresses(tc.have, own)); d != "" {
			t.Errorf("%s: %s\n%s", name, tc.reason, d)
		}
	}
	mine := []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	if got := (*Cloud)(nil).taints(mine); len(got) != 1 {
		t.Error(got)
	}
	if got := told.taints(mine); len(got) != 2 || got[1].Key != "node.cloudprovider.kubernetes.io/uninitialized" || len(mine) != 1 {
		t.Error(got)
	}
	if got := told.annotations()["alpha.kubernetes.io/provided-node-ip"]; got != "192.0.2.1,2001:db8::1" || untold.annotations() != nil {
		t.Error(got)
	}
}
