package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

func strictGroups(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: ptr(corev1.SupplementalGroupsPolicyStrict)}
}

// A node whose runtime cannot keep the groups of the image from a process rejects pods
// that require it.
func TestStrictSupplementalGroups(t *testing.T) {
	for name, supported := range map[string]bool{"Supported": true, "NotSupported": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, crifake.Config{StrictGroups: supported}, func(r *rig) {
				r.api.create(newPod("a", strictGroups))
				r.pass(5 * time.Second)
				s := r.pod("a").Status
				if !supported {
					const want = "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node"
					if s.Phase != corev1.PodFailed || s.Reason != "SupplementalGroupsPolicyNotSupported" || s.Message != want {
						t.Errorf("pod is %+v", s)
					}
					return
				}
				if s.Phase != corev1.PodRunning {
					t.Errorf("pod is %+v", s)
				}
				c := r.container("a", "app").Config.Linux.SecurityContext
				box := r.runtime.Sandbox(r.container("a", "app").SandboxID).Linux.SecurityContext
				if c.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict || box.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict {
					t.Errorf("the container has policy %s, the sandbox %s", c.SupplementalGroupsPolicy, box.SupplementalGroupsPolicy)
				}
			})
		})
	}
}

func TestRecursiveReadOnlyMounts(t *testing.T) {
	mounting := func(mode corev1.RecursiveReadOnlyMode) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "v", MountPath: "ro", ReadOnly: true, RecursiveReadOnly: &mode}, {Name: "v", MountPath: "/rw"},
			}
		}
	}
	for name, row := range map[string]struct {
		reason    string
		supported bool
		mode      corev1.RecursiveReadOnlyMode
		want      corev1.RecursiveReadOnlyMode // "": the container does not start
	}{
		"Enabled":             {"the runtime can", true, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyEnabled},
		"EnabledUnsupported":  {"a promise that cannot be kept must not be made", false, corev1.RecursiveReadOnlyEnabled, ""},
		"IfPossible":          {"it is possible", true, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled},
		"IfPossibleElsewhere": {"the status says that it is not", false, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyDisabled},
		"Disabled":            {"the mounts below stay as they are", true, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, crifake.Config{RecursiveReadOnly: row.supported}, func(r *rig) {
				r.api.create(newPod("a", mounting(row.mode)))
				r.pass(5 * time.Second)
				s := r.pod("a").Status.ContainerStatuses[0]
				if row.want == "" {
					const want = `failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, but it is not supported by the runtime`
					if w := s.State.Waiting; w == nil || w.Reason != reasonConfigError || w.Message != want {
						t.Errorf("%s: container is %+v", row.reason, s.State)
					}
					return
				}
				want := []corev1.VolumeMountStatus{{Name: "v", MountPath: "ro", ReadOnly: true, RecursiveReadOnly: &row.want}, {Name: "v", MountPath: "/rw"}}
				if diff := cmp.Diff(want, s.VolumeMounts); diff != "" {
					t.Errorf("%s (-want +got):\n%s", row.reason, diff)
				}
				if got := r.container("a", "app").Config.Mounts[0]; !got.Readonly || got.RecursiveReadOnly != (row.want == corev1.RecursiveReadOnlyEnabled) {
					t.Errorf("%s: the mount is %v", row.reason, got)
				}
			})
		})
	}
}

// A container whose stop signal the runtime ignores does not start.
func TestStopSignals(t *testing.T) {
	signal := corev1.SIGRTMINPLUS3
	for name, supported := range map[string]bool{"Supported": true, "NotSupported": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, crifake.Config{StopSignals: supported}, func(r *rig) {
				r.api.create(newPod("a", func(p *corev1.Pod) {
					p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
					p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &signal}
				}))
				r.api.create(newPod("plain"))
				r.pass(5 * time.Second)
				s := r.pod("a").Status.ContainerStatuses[0]
				if supported {
					if s.State.Running == nil || s.StopSignal == nil || *s.StopSignal != signal {
						t.Errorf("container is %+v", s)
					}
					return
				}
				if w := s.State.Waiting; w == nil || w.Reason != reasonCreateError || w.Message != "stopSignal SIGRTMIN+3 is not supported by the runtime" {
					t.Errorf("container is %+v", s.State)
				}
				if len(r.calls("StartContainer a/")) > 0 || len(r.runtime.Containers()) != 1 {
					t.Error("the runtime keeps a container that it would stop otherwise than its pod says")
				}
				if s := r.pod("plain").Status; s.Phase != corev1.PodRunning {
					t.Errorf("a pod with the runtime's default is %+v", s)
				}
			})
		})
	}
}
