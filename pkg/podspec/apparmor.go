package podspec

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The deprecated annotations for AppArmor profiles.
const (
	appArmorKey        = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	appArmorDefault    = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	appArmorUnconfined = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	appArmorLocalhost  = corev1.DeprecatedAppArmorBetaProfileNamePrefix
)

// maxProfileName is PATH_MAX without the terminating NUL.
const maxProfileName = 4095

func validateAppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	file := path.Child("localhostProfile")
	switch p.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "type is required when appArmorProfile is set")}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(file, p.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
		return nil
	case corev1.AppArmorProfileTypeLocalhost:
		return validateProfileName(p.LocalhostProfile, file)
	}
	return field.ErrorList{field.NotSupported(path.Child("type"), p.Type, []corev1.AppArmorProfileType{
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined})}
}

func validateProfileName(name *string, path *field.Path) field.ErrorList {
	if name == nil {
		return field.ErrorList{field.Required(path, "must be set when AppArmor type is Localhost")}
	}
	var errs field.ErrorList
	switch trimmed := strings.TrimSpace(*name); {
	case trimmed != *name:
		errs = append(errs, field.Invalid(path, *name, "must not be padded with whitespace"))
	case trimmed == "":
		errs = append(errs, field.Required(path, "must be set when AppArmor type is Localhost"))
	}
	if len(*name) > maxProfileName {
		errs = append(errs, field.TooLong(path, "", maxProfileName))
	}
	return errs
}

// appArmorOf converts the value of an annotation to the field, or returns nil if
// the value is invalid.
func appArmorOf(value string) *corev1.AppArmorProfile {
	switch {
	case value == appArmorUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case value == appArmorDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case strings.HasPrefix(value, appArmorLocalhost):
		name := strings.TrimPrefix(value, appArmorLocalhost)
		p := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		if len(validateAppArmor(p, nil)) == 0 {
			return p
		}
	}
	return nil
}

// containerAt is a container of any type with its path.
type containerAt struct {
	*corev1.Container
	path *field.Path
}

func everyContainer(spec *corev1.PodSpec, path *field.Path) iter.Seq[containerAt] {
	return func(yield func(containerAt) bool) {
		for i := range spec.InitContainers {
			if !yield(containerAt{&spec.InitContainers[i], path.Child("initContainers").Index(i)}) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(containerAt{&spec.Containers[i], path.Child("containers").Index(i)}) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(containerAt{c, path.Child("ephemeralContainers").Index(i)}) {
				return
			}
		}
	}
}

// AppArmorFields copies the profiles in the annotations of a new pod to the fields
// of its containers, and returns a deprecation warning for each.
func AppArmorFields(annotations map[string]string, spec *corev1.PodSpec) []string {
	var warnings []string
	for c := range everyContainer(spec, nil) {
		value, set := annotations[appArmorKey+c.Name]
		if !set || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorOf(value)
		if profile != nil && spec.SecurityContext != nil && apiequality.Semantic.DeepEqual(profile, spec.SecurityContext.AppArmorProfile) {
			continue
		}
		if profile != nil {
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		}
		warnings = append(warnings, appArmorWarning(field.NewPath("metadata"), c.Name))
	}
	return warnings
}

func appArmorWarning(metadata *field.Path, container string) string {
	return fmt.Sprintf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, metadata.Child("annotations").Key(appArmorKey+container))
}

// appArmorTemplateWarnings returns the deprecation warnings of a template. The
// template keeps its annotations; each pod created from it gets the fields.
func appArmorTemplateWarnings(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) []string {
	var warnings []string
	for c := range everyContainer(spec, nil) {
		value, set := annotations[appArmorKey+c.Name]
		if !set || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		if s := spec.SecurityContext; s == nil || s.AppArmorProfile == nil || !apiequality.Semantic.DeepEqual(s.AppArmorProfile, appArmorOf(value)) {
			warnings = append(warnings, appArmorWarning(path.Child("metadata"), c.Name))
		}
	}
	return warnings
}

// ValidateAppArmorAnnotations validates the annotations of a pod or a template, and
// that they match the fields. metadata and at are the paths of the object metadata
// and of spec.
func ValidateAppArmorAnnotations(annotations map[string]string, spec *corev1.PodSpec, metadata, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for c := range everyContainer(spec, at) {
		names[c.Name] = true
		if value, set := annotations[appArmorKey+c.Name]; set {
			errs = append(errs, matchAppArmor(value, c, spec.SecurityContext)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, appArmorKey)
		if !ok {
			continue
		}
		path, value := metadata.Child("annotations").Key(key), annotations[key]
		if !names[name] {
			errs = append(errs, field.Invalid(path, name, "container not found"))
		}
		if value != "" && value != appArmorDefault && value != appArmorUnconfined && !strings.HasPrefix(value, appArmorLocalhost) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("invalid AppArmor profile name: %q", value)))
		}
	}
	return errs
}

func matchAppArmor(value string, c containerAt, pod *corev1.PodSecurityContext) field.ErrorList {
	var says *corev1.AppArmorProfile
	if pod != nil {
		says = pod.AppArmorProfile
	}
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		says = c.SecurityContext.AppArmorProfile
	}
	if says == nil {
		return nil
	}
	path := c.path.Child("securityContext", "appArmorProfile")
	mismatch := field.ErrorList{field.Forbidden(path.Child("type"), "apparmor type in annotation and field must match")}
	switch says.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		if value != appArmorUnconfined {
			return mismatch
		}
	case corev1.AppArmorProfileTypeRuntimeDefault:
		if value != appArmorDefault {
			return mismatch
		}
	case corev1.AppArmorProfileTypeLocalhost:
		name, ok := strings.CutPrefix(value, appArmorLocalhost)
		switch {
		case !ok:
			return mismatch
		case says.LocalhostProfile == nil || *says.LocalhostProfile != name:
			return field.ErrorList{field.Forbidden(path.Child("localhostProfile"), "apparmor profile in annotation and field must match")}
		}
	}
	return nil
}

// ValidateAppArmorUpdate checks that the AppArmor annotations of a pod do not
// change.
func ValidateAppArmorUpdate(new, old map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if now, kept := new[key]; strings.HasPrefix(key, appArmorKey) && (!kept || now != old[key]) {
			errs = append(errs, field.Forbidden(path.Key(key), "may not remove or update AppArmor annotations"))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(new)) {
		if _, was := old[key]; strings.HasPrefix(key, appArmorKey) && !was {
			errs = append(errs, field.Forbidden(path.Key(key), "may not add AppArmor annotations"))
		}
	}
	return errs
}
