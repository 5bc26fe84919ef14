package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// A volume reflects a change of the pod at once, and a change of an object to which it
// refers within the period.
func TestVolumesFollowThePod(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Labels = map[string]string{"size": "small"}
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				DefaultMode: ptr(int32(0o644)),
				Items:       []corev1.DownwardAPIVolumeFile{{Path: "size", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['size']"}}},
			}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}))
		r.pass(5 * time.Second)
		shows := func(want string) {
			t.Helper()
			files, err := filepath.Glob(filepath.Join(r.dir, "pods", string(r.pod("a").UID), "volumes", "*", "v", "size"))
			if err != nil || len(files) != 1 {
				t.Fatalf("%v, %v", files, err)
			}
			if got, err := os.ReadFile(files[0]); err != nil || string(got) != want {
				t.Errorf("the file holds %q, %v; want %q", got, err, want)
			}
		}
		shows("small")
		for _, size := range []string{"medium", "large"} {
			r.api.change("a", func(p *corev1.Pod) { p.Labels = map[string]string{"size": size} })
			r.pass(time.Second)
			shows(size)
		}
	})
}
