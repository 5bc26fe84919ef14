package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/sysctls"
)

// Host is what the machine can enforce of a pod's security context.
type Host struct {
	AppArmor   bool
	SELinux    bool
	PingGroups bool             // network namespaces have net.ipv4.ping_group_range
	UserNS     bool             // the kernel supports user namespaces
	Sysctls    *sysctls.Allowed // nil: pods may set none
}

// refuse returns why the machine cannot run the pod, with upstream's reasons and
// messages; nil if it can.
func (h *Host) refuse(pod *corev1.Pod) *refusal {
	if err := h.Sysctls.Check(pod); err != nil {
		return &refusal{"SysctlForbidden", err.Error()}
	}
	if wantsAppArmor(pod) && !h.AppArmor {
		return &refusal{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	return nil
}

// wantsAppArmor reports whether the pod or a container requests an AppArmor profile.
func wantsAppArmor(pod *corev1.Pod) bool {
	confines := func(p *corev1.AppArmorProfile) bool {
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if s := pod.Spec.SecurityContext; s != nil && confines(s.AppArmorProfile) {
		return true
	}
	if podspec.Find(pod, func(c *corev1.Container) bool {
		return c.SecurityContext != nil && confines(c.SecurityContext.AppArmorProfile)
	}) != nil {
		return true
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}

// wantsSELinux reports whether the pod or a container sets SELinux options.
func wantsSELinux(pod *corev1.Pod) bool {
	if s := pod.Spec.SecurityContext; s != nil && s.SELinuxOptions != nil {
		return true
	}
	return podspec.Find(pod, func(c *corev1.Container) bool {
		return c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil
	}) != nil
}
