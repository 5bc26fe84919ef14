package pods

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/podspec"
)

// A volume reflects a change of the pod at once, and a change of an object to which it
// refers within the period: for init containers, too.
func TestVolumesFollowThePod(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"app container":  func(*corev1.Pod) {},
		"init container": withInit("init"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, crifake.Config{}, func(r *rig) {
				r.api.create(newPod("a", func(p *corev1.Pod) {
					p.Labels = map[string]string{"size": "small"}
					p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
						DefaultMode: ptr(int32(0o644)),
						Items:       []corev1.DownwardAPIVolumeFile{{Path: "size", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['size']"}}},
					}}}}
					change(p)
					for c := range podspec.Containers(p) {
						c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
					}
				}))
				r.pass(5 * time.Second)
				shows := func(want string) {
					r.t.Helper()
					files, err := filepath.Glob(filepath.Join(r.dir, "pods", string(r.pod("a").UID), "volumes", "*", "v", "size"))
					if err != nil || len(files) != 1 {
						r.t.Fatalf("%v, %v", files, err)
					}
					if got, err := os.ReadFile(files[0]); err != nil || string(got) != want {
						r.t.Errorf("the file holds %q, %v; want %q", got, err, want)
					}
				}
				shows("small")
				for _, size := range []string{"medium", "large"} {
					r.api.change("a", func(p *corev1.Pod) { p.Labels = map[string]string{"size": size} })
					r.pass(time.Second)
					shows(size)
				}
				r.restart()
				r.pass(2 * time.Minute)
				r.api.change("a", func(p *corev1.Pod) { p.Labels = map[string]string{"size": "huge"} })
				r.pass(time.Second)
				shows("huge")
			})
		})
	}
}

// followed is a References that notes the pods.
type followed struct {
	mu    sync.Mutex
	pods  map[types.UID]bool
	calls int // of Follow
}

func (f *followed) Follow(_ context.Context, pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[pod.UID] = true
	f.calls++
}

func (f *followed) Forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, uid)
}

// What a pod refers to is followed while it may run: not after it has ended, though the
// API still has it, and not when a kubelet finds it so.
func TestReferencesAreFollowedWhilePodsRun(t *testing.T) {
	f := &followed{pods: map[types.UID]bool{}}
	prepare := func(r *rig) { r.tweak = func(c *Config) { c.References = f } }
	bubbleWith(t, crifake.Config{Behave: exits(map[string]int32{"job": 0})}, prepare, func(r *rig) {
		follows := func(want ...types.UID) {
			r.t.Helper()
			f.mu.Lock()
			defer f.mu.Unlock()
			if got := slices.Sorted(maps.Keys(f.pods)); !slices.Equal(got, want) {
				r.t.Errorf("follows %v, want %v", got, want)
			}
		}
		r.api.create(newPod("a"))
		r.api.create(newPod("b", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.Containers[0].Name = "job"
		}))
		r.pass(5 * time.Minute)
		if phase := r.pod("b").Status.Phase; phase != corev1.PodSucceeded {
			r.t.Errorf("the pod is %s", phase)
		}
		follows("uid-a")
		clear(f.pods)
		r.restart()
		r.pass(time.Second)
		follows("uid-a")
		if f.calls != 3 {
			r.t.Errorf("%d pods were followed: both, and after the restart the one that runs", f.calls)
		}
		r.api.deleteGracefully("a", 1)
		r.pass(time.Minute)
		follows()
	})
}
