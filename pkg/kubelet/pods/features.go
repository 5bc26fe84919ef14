package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// features are those that the runtime reports for pods of one handler.
type features struct {
	handler           string // "": the runtime's default
	userNS            bool
	recursiveReadOnly bool
	strictGroups      bool
}

// features asks the runtime what it supports for the pod.
func (m *Manager) features(ctx context.Context, pod *corev1.Pod) (features, error) {
	handler, err := m.handler(ctx, pod)
	if err != nil {
		return features{}, err
	}
	res, err := m.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return features{}, fmt.Errorf("runtime status: %s", cri.Message(err))
	}
	f := features{handler: handler, strictGroups: res.GetFeatures().GetSupplementalGroupsPolicy()}
	for _, h := range res.RuntimeHandlers {
		if h.Name == handler {
			f.userNS, f.recursiveReadOnly = h.GetFeatures().GetUserNamespaces(), h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return f, nil
}

// handler returns how the runtime calls the pod's RuntimeClass; "" is its default.
func (m *Manager) handler(ctx context.Context, pod *corev1.Pod) (string, error) {
	class := pod.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", nil
	}
	handler, err := m.cfg.Handler(ctx, *class)
	if err != nil {
		return "", fmt.Errorf("get the handler of RuntimeClass %q: %w", *class, err)
	}
	return handler, nil
}

// refuseUnsupported rejects a pod that needs a feature which the kernel or the runtime
// does not have. The error means that the runtime does not answer.
func (m *Manager) refuseUnsupported(ctx context.Context, pod *corev1.Pod) (*refusal, error) {
	users, groups := wantsUserNS(pod), wantsStrictGroups(pod)
	if !users && !groups {
		return nil, nil
	}
	const noUserNS = "Pod requires a user namespace (hostUsers: false): "
	if users && !m.cfg.Host.UserNS {
		return &refusal{reasonNoUserNS, noUserNS + "the kernel of this node does not support it"}, nil
	}
	f, err := m.features(ctx, pod)
	switch {
	case err != nil:
		return nil, err
	case users && !f.userNS:
		return &refusal{reasonNoUserNS, noUserNS + fmt.Sprintf("RuntimeClass handler %q does not support user namespaces", f.handler)}, nil
	case groups && !f.strictGroups:
		return &refusal{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}, nil
	}
	return nil, nil
}

const reasonNoUserNS = "UserNamespacesNotSupported"

// imageVolumesSince is the version of containerd that mounts images.
var imageVolumesSince = version.MajorMinor(2, 1)

// checkImageVolumes returns an error if the runtime is known not to mount images. No
// runtime reports whether it does.
func (m *Manager) checkImageVolumes(ctx context.Context) error {
	res, err := m.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fmt.Errorf("runtime version: %s", cri.Message(err))
	}
	if v, err := version.ParseGeneric(res.RuntimeVersion); err != nil || res.RuntimeName != "containerd" || v.AtLeast(imageVolumesSince) {
		return nil
	}
	return fmt.Errorf("image volumes are not supported by containerd %s; %s or later is needed", res.RuntimeVersion, imageVolumesSince)
}

// wantsStrictGroups reports whether the pod's processes may have no groups of the
// image's /etc/group.
func wantsStrictGroups(pod *corev1.Pod) bool {
	s := pod.Spec.SecurityContext
	return s != nil && s.SupplementalGroupsPolicy != nil && *s.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict
}

// recursive reports whether the mounts below a read-only mount become read-only, too.
// It returns an error if they have to and the runtime does not support it.
func (m *Manager) recursive(ctx context.Context, pod *corev1.Pod, vm *corev1.VolumeMount) (bool, error) {
	mode := vm.RecursiveReadOnly
	if mode == nil || *mode == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	f, err := m.features(ctx, pod)
	if err != nil {
		return false, err
	}
	if *mode == corev1.RecursiveReadOnlyEnabled && !f.recursiveReadOnly {
		return false, fmt.Errorf("failed to resolve recursive read-only mode: volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	}
	return f.recursiveReadOnly, nil
}

// mountStatuses returns how the volumes are mounted in c.
func mountStatuses(mounts []corev1.VolumeMount, c *container) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for i := range mounts {
		s := corev1.VolumeMountStatus{Name: mounts[i].Name, MountPath: mounts[i].MountPath, ReadOnly: mounts[i].ReadOnly}
		if s.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if c.recursive[inContainer(s.MountPath)] {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

// recursiveMounts returns the paths of the mounts that are read-only with all mounts
// below them; nil if there are none.
func recursiveMounts(mounts []*runtimeapi.Mount) map[string]bool {
	var out map[string]bool
	for _, m := range mounts {
		if !m.RecursiveReadOnly {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		out[m.ContainerPath] = true
	}
	return out
}

// stopSignal returns the signal that stops the container.
func stopSignal(spec *corev1.Container) runtimeapi.Signal {
	if spec.Lifecycle == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	return cri.Signal(spec.Lifecycle.StopSignal)
}

// checkStopSignal removes a container that was not started if the runtime has ignored
// its stop signal, and returns an error then. The runtime does not report whether it
// supports the field; one that does shows it in the container's status.
func (m *Manager) checkStopSignal(ctx context.Context, spec *corev1.Container, id string) error {
	want := stopSignal(spec)
	if want == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	res, err := m.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return err
	}
	if res.Status.GetStopSignal() == want {
		return nil
	}
	if _, err := m.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		return err
	}
	return fmt.Errorf("stopSignal %s is not supported by the runtime", *spec.Lifecycle.StopSignal)
}
