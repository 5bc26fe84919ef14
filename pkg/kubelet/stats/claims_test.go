package stats_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/stats"
)

// The volume of a claim is counted once, volumes without a claim not at all, and what a
// driver does not report is left out.
func TestClaims(t *testing.T) {
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{
				{Name: "shared", VolumeSource: claim},
				{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
				{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}},
			}},
		}
	}
	c := &stats.Claims{
		Pods: func() []*corev1.Pod { return []*corev1.Pod{pod("a"), pod("b")} },
		Volume: func(uid types.UID, volume string) (stats.Filesystem, bool) {
			if volume == "own" && uid == "b" {
				return stats.Filesystem{}, false // not measured yet
			}
			return stats.Filesystem{CapacityBytes: new(uint64(1000)), UsedBytes: new(uint64(len(volume)))}, true
		},
	}
	const want = `
# HELP kubelet_volume_stats_capacity_bytes Capacity in bytes of the volume
# TYPE kubelet_volume_stats_capacity_bytes gauge
kubelet_volume_stats_capacity_bytes{namespace="ns",persistentvolumeclaim="a-own"} 1000
kubelet_volume_stats_capacity_bytes{namespace="ns",persistentvolumeclaim="data"} 1000
# HELP kubelet_volume_stats_used_bytes Number of used bytes in the volume
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="a-own"} 3
kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="data"} 6
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
