package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/sysctls"
)

// Host is what the machine can enforce of a pod's security context.
type Host struct {
	AppArmor   bool
	SELinux    bool
	PingGroups bool             // network namespaces have net.ipv4.ping_group_range
	UserNS     bool             // the kernel makes user namespaces
	Sysctls    *sysctls.Allowed // nil: none may be set
}

// refuse says what the pod asks for that this machine cannot give; upstream's
// reasons and words.
func (h *Host) refuse(pod *corev1.Pod) *refusal {
	if err := h.Sysctls.Check(pod); err != nil {
		return &refusal{"SysctlForbidden", err.Error()}
	}
	if wantsAppArmor(pod) && !h.AppArmor {
		return &refusal{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	return nil
}

// wantsAppArmor says that some container is to be confined by AppArmor.
func wantsAppArmor(pod *corev1.Pod) bool {
	confines := func(p *corev1.AppArmorProfile) bool {
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if s := pod.Spec.SecurityContext; s != nil && confines(s.AppArmorProfile) {
		return true
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if s := list[i].SecurityContext; s != nil && confines(s.AppArmorProfile) {
				return true
			}
		}
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}

// wantsSELinux says that some container is to have labels of its own.
func wantsSELinux(pod *corev1.Pod) bool {
	if s := pod.Spec.SecurityContext; s != nil && s.SELinuxOptions != nil {
		return true
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if s := list[i].SecurityContext; s != nil && s.SELinuxOptions != nil {
				return true
			}
		}
	}
	return false
}
