package pods

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// withImage mounts an image in the container app.
func withImage(reference string, policy corev1.PullPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: policy}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data", SubPath: "models"})
	}
}

func TestImageVolumes(t *testing.T) {
	bubble(t, crifake.Config{}, func(r *rig) {
		r.api.create(newPod("a", withImage("registry.example/data:1", corev1.PullIfNotPresent)))
		r.pass(10 * time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Fatalf("the pod is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		if got := r.calls("PullImage registry.example/data:1"); len(got) != 1 {
			t.Errorf("the image of the volume was pulled %d times", len(got))
		}
		mounts := r.container("a", "app").Config.Mounts
		m := mounts[0]
		if m.ContainerPath != "/data" || !m.Readonly || m.ImageSubPath != "models" || m.HostPath != "" || m.Image.GetImage() == "" {
			t.Errorf("the volume is mounted by %v", m)
		}
		r.runtime.Kill(r.container("a", "app").ID, 1)
		r.pass(30 * time.Second)
		if got := r.calls("PullImage registry.example/data:1"); len(got) != 1 {
			t.Errorf("after a restart, the image was pulled %d times", len(got))
		}
		r.restart()
		r.pass(time.Minute)
		if got := r.container("a", "app"); got.Attempt != 1 {
			t.Errorf("a restart of the kubelet made attempt %d", got.Attempt)
		}
	})
}

// A container whose image volume cannot be had waits for the image's reason.
func TestImageVolumesThatAreNotThere(t *testing.T) {
	for _, tc := range []struct {
		policy     corev1.PullPolicy
		containerd string
		pull       error
		want       []string // the reason and a part of the message
	}{
		{corev1.PullNever, "2.1.0", nil, []string{"ErrImageNeverPull", `"registry.example/data:1" is not present with pull policy of Never`}},
		{corev1.PullAlways, "2.4.2", errors.New("no such manifest"), []string{"ImagePullBackOff", "no such manifest"}},
		{corev1.PullAlways, "1.6.20~ds1", nil, []string{"CreateContainerConfigError", "image volumes are not supported by containerd 1.6.20~ds1; 2.1 or later is needed"}},
	} {
		pull := func(image string, _ *runtimeapi.AuthConfig) error {
			if strings.HasPrefix(image, "registry.example/data") {
				return tc.pull
			}
			return nil
		}
		bubble(t, crifake.Config{Containerd: tc.containerd, Pull: pull}, func(r *rig) {
			r.api.create(newPod("a", withImage("registry.example/data:1", tc.policy)))
			r.pass(8 * time.Second)
			w := r.pod("a").Status.ContainerStatuses[0].State.Waiting
			if w == nil || w.Reason != tc.want[0] || !strings.Contains(w.Message, tc.want[1]) {
				t.Errorf("%s: the container waits for %+v, want %v", tc.policy, w, tc.want)
			}
			r.api.deleteGracefully("a", 0)
			r.pass(time.Minute)
			if !r.gone("a") {
				t.Errorf("%s: the pod is still there", tc.policy)
			}
		})
	}
}
