package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/cri/crifake"
)

func TestAVolumeThatOutgrowsItsLimitEvicts(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		p := newPod("a")
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("1Mi"))}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		r.api.create(p)
		r.pass(30 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Fatalf("too early: %+v", p.Status)
		}
		file := filepath.Join(r.dir, "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/v/big")
		if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * measurePeriod)
		r.pass(time.Minute)
		s := r.pod("a").Status
		if s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != `Usage of EmptyDir volume "v" exceeds the limit "1Mi". ` {
			t.Errorf("status is %+v", s)
		}
	})
}
