package podspec

import (
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The formats of iSCSI names: qualified names, EUI-64 identifiers, and NAA identifiers.
//
// https://www.rfc-editor.org/rfc/rfc3720#section-3.2.6.3
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`^iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui\.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa\.[[:alnum:]]{32}$`),
}

// interfaceLimit is how long the name of an iSCSI interface may be, in bytes.
const interfaceLimit = 64

// ValidateNFS validates a directory of an NFS server.
func ValidateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n.Server == "" {
		errs = append(errs, field.Required(at.Child("server"), ""))
	}
	if n.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	}
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

// validateISCSI validates an iSCSI volume of a pod.
func validateISCSI(s *corev1.ISCSIVolumeSource, at *field.Path) field.ErrorList {
	errs := validateTarget(s.TargetPortal, s.IQN, s.Lun, s.InitiatorName, at)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	}
	return errs
}

// ValidateISCSIVolume validates a persistent iSCSI volume with that name.
func ValidateISCSIVolume(s *corev1.ISCSIPersistentVolumeSource, name string, at *field.Path) field.ErrorList {
	errs := validateTarget(s.TargetPortal, s.IQN, s.Lun, s.InitiatorName, at)
	switch chap := s.DiscoveryCHAPAuth || s.SessionCHAPAuth; {
	case chap && s.SecretRef == nil:
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	case s.SecretRef != nil && s.SecretRef.Name == "":
		errs = append(errs, field.Required(at.Child("secretRef", "name"), ""))
	}
	if s.InitiatorName != nil && len(name)+len(":")+len(s.TargetPortal) > interfaceLimit {
		errs = append(errs, field.Invalid(at.Child("targetportal"), s.TargetPortal,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	return errs
}

func validateTarget(portal, iqn string, lun int32, initiator *string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if portal == "" {
		errs = append(errs, field.Required(at.Child("targetPortal"), ""))
	}
	if iqn == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		errs = append(errs, validateISCSIName(iqn, at.Child("iqn"))...)
	}
	if lun < 0 || lun > 255 {
		errs = append(errs, field.Invalid(at.Child("lun"), lun, "must be between 0 and 255, inclusive"))
	}
	if initiator != nil {
		errs = append(errs, validateISCSIName(*initiator, at.Child("initiatorName"))...)
	}
	return errs
}

func validateISCSIName(name string, at *field.Path) field.ErrorList {
	format, ok := iscsiNames[name[:min(len(name), len("iqn"))]]
	if !ok || !strings.Contains(name, ".") {
		return field.ErrorList{field.Invalid(at, name, "must be valid format starting with iqn, eui, or naa")}
	}
	if !format.MatchString(name) {
		return field.ErrorList{field.Invalid(at, name, "must be valid format")}
	}
	return nil
}
