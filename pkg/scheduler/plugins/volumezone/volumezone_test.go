package volumezone

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReaches(t *testing.T) {
	const zone, older, region = corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyRegion
	for name, row := range map[string]struct {
		reason       string
		node, volume map[string]string
		want         bool
	}{
		"Same":      {"the node is in the volume's zone", map[string]string{zone: "a"}, map[string]string{zone: "a"}, true},
		"Other":     {"the node is in another zone", map[string]string{zone: "b"}, map[string]string{zone: "a"}, false},
		"Several":   {"the volume is in two zones", map[string]string{zone: "b"}, map[string]string{zone: "a__b"}, true},
		"Older":     {"the older name means the same", map[string]string{zone: "a"}, map[string]string{older: "a"}, true},
		"Unlabeled": {"a node without zones and regions is everywhere", map[string]string{"x": "y"}, map[string]string{zone: "a"}, true},
		"NoZone":    {"a node with a region must have a zone too", map[string]string{region: "r"}, map[string]string{zone: "a"}, false},
		"NoLabels":  {"the volume may be anywhere", map[string]string{zone: "a"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: row.volume}}
			if got := reaches(row.node, placesOf(pv)); got != row.want {
				t.Errorf("%v, but %s", got, row.reason)
			}
		})
	}
}
