package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

func validatePodSecurity(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	s := spec.SecurityContext
	if s == nil {
		return nil
	}
	path = path.Child("securityContext")
	var errs field.ErrorList
	errs = append(errs, validateID(s.RunAsUser, validation.IsValidUserID, path.Child("runAsUser"))...)
	errs = append(errs, validateID(s.RunAsGroup, validation.IsValidGroupID, path.Child("runAsGroup"))...)
	errs = append(errs, validateID(s.FSGroup, validation.IsValidGroupID, path.Child("fsGroup"))...)
	for i := range s.SupplementalGroups {
		errs = append(errs, validateID(&s.SupplementalGroups[i], validation.IsValidGroupID, path.Child("supplementalGroups").Index(i))...)
	}
	if p := s.FSGroupChangePolicy; p != nil {
		errs = append(errs, fieldcheck.OneOf(*p, path.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	}
	if p := s.SupplementalGroupsPolicy; p != nil {
		errs = append(errs, fieldcheck.OneOf(*p, path.Child("supplementalGroupsPolicy"), corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	errs = append(errs, validateSysctls(s.Sysctls, spec, path.Child("sysctls"))...)
	errs = append(errs, validateSeccomp(s.SeccompProfile, path.Child("seccompProfile"))...)
	return append(errs, validateAppArmor(s.AppArmorProfile, path.Child("appArmorProfile"))...)
}

func validateID(id *int64, check func(int64) []string, path *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return fieldcheck.Invalid(check(*id), path, *id)
}

func validateSecurity(s *corev1.SecurityContext, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, validateID(s.RunAsUser, validation.IsValidUserID, path.Child("runAsUser"))...)
	errs = append(errs, validateID(s.RunAsGroup, validation.IsValidGroupID, path.Child("runAsGroup"))...)
	errs = append(errs, validateSeccomp(s.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(s.AppArmorProfile, path.Child("appArmorProfile"))...)
	errs = append(errs, validateProcMount(s.ProcMount, spec, path.Child("procMount"))...)
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return errs
	}
	if s.Privileged != nil && *s.Privileged {
		errs = append(errs, field.Invalid(path, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool { return c == "CAP_SYS_ADMIN" }) {
		errs = append(errs, field.Invalid(path, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
	}
	return errs
}

// ownUsers reports whether the pod has its own user namespace.
func ownUsers(spec *corev1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }

// validateHostUsers checks that a pod with its own user namespace shares no other
// namespace with the host. Paths and messages are upstream's.
func validateHostUsers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if !ownUsers(spec) {
		return nil
	}
	const detail = "when `hostUsers` is false"
	var errs field.ErrorList
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(path.Child("hostNetwork"), detail))
	}
	if spec.HostPID {
		errs = append(errs, field.Forbidden(path.Child("HostPID"), detail))
	}
	if spec.HostIPC {
		errs = append(errs, field.Forbidden(path.Child("HostIPC"), detail))
	}
	return errs
}

// validateProcMount allows an unmasked /proc only for a pod with its own user
// namespace.
func validateProcMount(p *corev1.ProcMountType, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	switch *p {
	case corev1.DefaultProcMount:
		return nil
	case corev1.UnmaskedProcMount:
		if ownUsers(spec) {
			return nil
		}
		return field.ErrorList{field.Invalid(path, *p, "`hostUsers` must be false to use `Unmasked`")}
	}
	return field.ErrorList{field.NotSupported(path, *p, []corev1.ProcMountType{corev1.DefaultProcMount, corev1.UnmaskedProcMount})}
}

func validateSeccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	file := path.Child("localhostProfile")
	switch p.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "type is required when seccompProfile is set")}
	case corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return field.ErrorList{field.Required(file, "must be set when seccomp type is Localhost")}
		}
		return descending(*p.LocalhostProfile, file)
	case corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(file, *p.LocalhostProfile, "can only be set when seccomp type is Localhost")}
		}
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("type"), p.Type, []corev1.SeccompProfileType{
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined})}
}

const (
	sysctlPart      = `[a-z0-9]([-_a-z0-9]*[a-z0-9])?`
	sysctlFormat    = "(" + sysctlPart + `[\./])*` + sysctlPart
	maxSysctlLength = 253
)

var sysctlName = regexp.MustCompile("^" + sysctlFormat + "$")

func validateSysctls(list []corev1.Sysctl, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := unique{}
	for i, s := range list {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(s.Name) > maxSysctlLength || !sysctlName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlLength, sysctlName)))
		default:
			errs = append(errs, names.check(s.Name, at)...)
			errs = append(errs, hostSysctl(s.Name, spec, at)...)
		}
	}
	return errs
}

// hostSysctl rejects sysctls of a namespace that the pod shares with the host,
// because they would change the host.
func hostSysctl(name string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	name = strings.ReplaceAll(name, "/", ".")
	if spec.HostNetwork && strings.HasPrefix(name, "net.") {
		return field.ErrorList{field.Invalid(path, name, "may not be specified when 'hostNetwork' is true")}
	}
	ipc := strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")
	if spec.HostIPC && ipc {
		return field.ErrorList{field.Invalid(path, name, "may not be specified when 'hostIPC' is true")}
	}
	return nil
}
