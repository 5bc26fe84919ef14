package podspec

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported is the message for every field that this server does not implement.
// The server rejects such fields instead of ignoring them.
const Unsupported = "Podium does not support this field"

func refused(path *field.Path) *field.Error { return field.Forbidden(path, Unsupported) }

// refusals collects errors for unsupported fields.
type refusals struct{ errs field.ErrorList }

func (r *refusals) when(set bool, path *field.Path) {
	if set {
		r.errs = append(r.errs, refused(path))
	}
}

// Refuse returns an error for each field that is set but not implemented.
func Refuse(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var r refusals
	r.when(spec.SchedulingGroup != nil, path.Child("schedulingGroup"))
	r.when(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"))
	r.when(spec.Resources != nil, path.Child("resources"))
	r.when(spec.HostnameOverride != nil, path.Child("hostnameOverride"))
	if os := spec.OS; os != nil && os.Name != corev1.Linux {
		r.errs = append(r.errs, field.NotSupported(path.Child("os", "name"), os.Name, []corev1.OSName{corev1.Linux}))
	}
	r.podSecurity(spec.SecurityContext, path.Child("securityContext"))
	for i := range spec.InitContainers {
		r.container(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		r.container(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		r.container((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
	return r.errs
}

func (r *refusals) podSecurity(s *corev1.PodSecurityContext, path *field.Path) {
	if s == nil {
		return
	}
	r.when(s.SELinuxChangePolicy != nil, path.Child("seLinuxChangePolicy"))
	r.when(s.WindowsOptions != nil, path.Child("windowsOptions"))
	r.when(s.SupplementalGroupsPolicy != nil && *s.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyMerge, path.Child("supplementalGroupsPolicy"))
}

func (r *refusals) container(c *corev1.Container, path *field.Path) {
	r.when(len(c.VolumeDevices) > 0, path.Child("volumeDevices"))
	r.when(len(c.Resources.Claims) > 0, path.Child("resources", "claims"))
	r.when(c.Lifecycle != nil && c.Lifecycle.StopSignal != nil, path.Child("lifecycle", "stopSignal"))
	for i := range c.VolumeMounts {
		mode := c.VolumeMounts[i].RecursiveReadOnly
		r.when(mode != nil && *mode == corev1.RecursiveReadOnlyEnabled, path.Child("volumeMounts").Index(i).Child("recursiveReadOnly"))
	}
	if s := c.SecurityContext; s != nil {
		r.when(s.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"))
	}
}

// otherSources returns the names of the volume sources of s that Podium does not
// support.
func otherSources(s *corev1.VolumeSource) []string {
	known := corev1.VolumeSource{
		EmptyDir: s.EmptyDir, HostPath: s.HostPath, Secret: s.Secret,
		ConfigMap: s.ConfigMap, DownwardAPI: s.DownwardAPI, Projected: s.Projected, CSI: s.CSI, PersistentVolumeClaim: s.PersistentVolumeClaim,
	}
	return FieldsBesides(*s, known)
}

// FieldsBesides returns the JSON names of the fields in which all differs from known.
// T is a struct of pointers.
func FieldsBesides[T comparable](all, known T) []string {
	if all == known {
		return nil
	}
	var names []string
	a, k := reflect.ValueOf(all), reflect.ValueOf(known)
	for i := range a.NumField() {
		if a.Field(i).Pointer() != k.Field(i).Pointer() {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// Warnings returns warnings for fields that are accepted, because common manifests
// set them, but have no effect, and those that upstream returns.
func Warnings(spec *corev1.PodSpec, path *field.Path) []string {
	var out []string
	warn := func(set bool, path *field.Path, text string) {
		if set {
			out = append(out, path.String()+": "+text)
		}
	}
	for i := range spec.Volumes {
		warn(spec.Volumes[i].CSI != nil, path.Child("volumes").Index(i).Child("csi"), "Podium does not mount CSI volumes: the pod will not start")
	}
	out = append(out, pullSecretWarnings(spec.ImagePullSecrets, path.Child("imagePullSecrets"))...)
	for i := range spec.Containers {
		out = append(out, duplicateEnv(spec.Containers[i].Env, path.Child("containers").Index(i).Child("env"))...)
	}
	for i := range spec.InitContainers {
		out = append(out, duplicateEnv(spec.InitContainers[i].Env, path.Child("initContainers").Index(i).Child("env"))...)
	}
	for i := range spec.EphemeralContainers {
		out = append(out, duplicateEnv(spec.EphemeralContainers[i].Env, path.Child("ephemeralContainers").Index(i).Child("env"))...)
	}
	return out
}

// TemplateWarnings returns the warnings for pods of the template.
func TemplateWarnings(t *corev1.PodTemplateSpec, path *field.Path) []string {
	return append(Warnings(&t.Spec, path.Child("spec")), appArmorTemplateWarnings(t.Annotations, &t.Spec, path)...)
}

// pullSecretWarnings returns warnings for empty and repeated names, which upstream
// accepts.
func pullSecretWarnings(refs []corev1.LocalObjectReference, path *field.Path) []string {
	var out []string
	seen := map[string]bool{}
	for i, ref := range refs {
		at := path.Index(i).Child("name")
		if seen[ref.Name] {
			out = append(out, fmt.Sprintf("%s: duplicate name %q", at, ref.Name))
		}
		if ref.Name == "" {
			out = append(out, fmt.Sprintf("%s: invalid empty name %q", at, ref.Name))
		}
		seen[ref.Name] = true
	}
	return out
}

// duplicateEnv returns warnings for variables of the same name, of which the last
// one takes effect.
func duplicateEnv(env []corev1.EnvVar, path *field.Path) []string {
	var out []string
	seen := map[string]bool{}
	for i, v := range env {
		if seen[v.Name] {
			out = append(out, fmt.Sprintf("%s: hides previous definition of %q, which may be dropped when using apply", path.Index(i), v.Name))
		}
		seen[v.Name] = true
	}
	return out
}
