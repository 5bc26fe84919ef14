package pods

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The paths of /proc and /sys that are masked or read-only in an unprivileged
// container.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// security returns the container's security context, with the pod's as defaults.
// target is the id of the container whose processes an ephemeral container shows; ""
// for all others.
func (m *Manager) security(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, image, target string) (*runtimeapi.LinuxContainerSecurityContext, error) {
	shared, err := m.namespaces(pod)
	if err != nil {
		return nil, err
	}
	if target != "" {
		shared.Pid, shared.TargetId = runtimeapi.NamespaceMode_TARGET, target
	}
	c := effectiveSecurity(pod, spec)
	s := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: shared,
		Privileged:       isTrue(c.Privileged),
		ReadonlyRootfs:   isTrue(c.ReadOnlyRootFilesystem),
		NoNewPrivs:       c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation,
		RunAsUser:        int64Value(c.RunAsUser),
		RunAsGroup:       int64Value(c.RunAsGroup),
		SelinuxOptions:   selinux(c.SELinuxOptions),
		Seccomp:          m.seccomp(c.SeccompProfile, isTrue(c.Privileged)),
		Apparmor:         apparmor(c.AppArmorProfile),
		Capabilities:     m.capabilities(c),
	}
	if p := pod.Spec.SecurityContext; p != nil {
		s.SupplementalGroups = groups(p)
		if wantsStrictGroups(pod) {
			s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
		}
	}
	if !s.Privileged && (c.ProcMount == nil || *c.ProcMount == corev1.DefaultProcMount) {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	return s, m.finishUser(ctx, pod, spec, image, c, s)
}

// netRaw is the capability to send raw packets. With it a container can forge the
// packets of other pods and answer for their addresses.
const netRaw = "NET_RAW"

// capabilities returns the capabilities that the container adds to and drops from
// the runtime's defaults. It drops NET_RAW from a container that neither adds it
// nor is privileged, unless Config.AllowNetRaw is set.
func (m *Manager) capabilities(c *corev1.SecurityContext) *runtimeapi.Capability {
	out := &runtimeapi.Capability{}
	keep := m.cfg.AllowNetRaw || isTrue(c.Privileged)
	if c.Capabilities != nil {
		for _, name := range c.Capabilities.Add {
			out.AddCapabilities = append(out.AddCapabilities, string(name))
			keep = keep || isNetRaw(name)
		}
		for _, name := range c.Capabilities.Drop {
			out.DropCapabilities = append(out.DropCapabilities, string(name))
			keep = keep || isNetRaw(name) // already dropped
		}
	}
	if !keep {
		out.DropCapabilities = append(out.DropCapabilities, netRaw)
	}
	if len(out.AddCapabilities)+len(out.DropCapabilities) == 0 {
		return nil
	}
	return out
}

// isNetRaw reports whether name is NET_RAW or ALL. Like the runtime, it ignores
// case.
func isNetRaw(name corev1.Capability) bool {
	return strings.EqualFold(string(name), netRaw) || strings.EqualFold(string(name), "ALL")
}

// finishUser sets the image's user if the pod does not set one and the runtime
// needs it. It returns an error if a container with runAsNonRoot would run as root.
func (m *Manager) finishUser(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, image string, c *corev1.SecurityContext, s *runtimeapi.LinuxContainerSecurityContext) error {
	mustNot := isTrue(c.RunAsNonRoot)
	if c.RunAsUser != nil {
		if mustNot && *c.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", describe(pod), spec.Name)
		}
		return nil
	}
	if !mustNot && s.RunAsGroup == nil {
		return nil // the runtime uses the image's user
	}
	res, err := m.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		return err
	}
	uid, name := res.Image.GetUid(), res.Image.GetUsername()
	if mustNot {
		switch {
		case uid != nil && uid.Value == 0, uid == nil && name == "":
			return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", describe(pod), spec.Name)
		case uid == nil:
			return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)", name, describe(pod), spec.Name)
		}
	}
	switch {
	case uid != nil:
		s.RunAsUser = &runtimeapi.Int64Value{Value: uid.Value}
	case name != "":
		s.RunAsUsername = name
	default:
		s.RunAsUser = &runtimeapi.Int64Value{Value: 0}
	}
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// effectiveSecurity returns the container's security context, with the pod's values
// for unset fields.
func effectiveSecurity(pod *corev1.Pod, spec *corev1.Container) *corev1.SecurityContext {
	c := &corev1.SecurityContext{}
	if spec.SecurityContext != nil {
		c = spec.SecurityContext.DeepCopy()
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return c
	}
	if c.RunAsUser == nil {
		c.RunAsUser = p.RunAsUser
	}
	if c.RunAsGroup == nil {
		c.RunAsGroup = p.RunAsGroup
	}
	if c.RunAsNonRoot == nil {
		c.RunAsNonRoot = p.RunAsNonRoot
	}
	if c.SELinuxOptions == nil {
		c.SELinuxOptions = p.SELinuxOptions
	}
	if c.SeccompProfile == nil {
		c.SeccompProfile = p.SeccompProfile
	}
	if c.AppArmorProfile == nil {
		c.AppArmorProfile = p.AppArmorProfile
	}
	return c
}

func (m *Manager) seccomp(p *corev1.SeccompProfile, privileged bool) *runtimeapi.SecurityProfile {
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	if privileged || p == nil {
		if p == nil && !privileged && m.cfg.SeccompDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
		}
		return unconfined
	}
	switch p.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{
				ProfileType:  runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: filepath.Join(m.cfg.RootDir, "seccomp", *p.LocalhostProfile),
			}
		}
	}
	return unconfined
}

func apparmor(p *corev1.AppArmorProfile) *runtimeapi.SecurityProfile {
	if p == nil {
		return nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
		}
	}
	return nil
}
