package podspec

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported is the detail of every refusal of what this server does not do.
// Nothing is accepted and then ignored.
const Unsupported = "Podium does not support this field"

func refused(path *field.Path) *field.Error { return field.Forbidden(path, Unsupported) }

// Priorities of the two classes that exist without being created.
const (
	SystemClusterCritical = "system-cluster-critical"
	SystemNodeCritical    = "system-node-critical"

	systemClusterPriority = 2_000_000_000
	systemNodePriority    = systemClusterPriority + 1000
)

// Priority is that of a class; ok is false if there is no such class.
func Priority(class string) (priority int32, ok bool) {
	switch class {
	case "":
		return 0, true
	case SystemClusterCritical:
		return systemClusterPriority, true
	case SystemNodeCritical:
		return systemNodePriority, true
	}
	return 0, false
}

// refusals collects what must be refused.
type refusals struct{ errs field.ErrorList }

func (r *refusals) when(set bool, path *field.Path) {
	if set {
		r.errs = append(r.errs, refused(path))
	}
}

// Refuse lists the fields that are set though nothing here would honour them.
func Refuse(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var r refusals
	r.when(len(spec.EphemeralContainers) > 0, path.Child("ephemeralContainers"))
	r.when(spec.RuntimeClassName != nil, path.Child("runtimeClassName"))
	r.when(len(spec.Overhead) > 0, path.Child("overhead"))
	r.when(len(spec.SchedulingGates) > 0, path.Child("schedulingGates"))
	r.when(spec.SchedulingGroup != nil, path.Child("schedulingGroup"))
	r.when(len(spec.ResourceClaims) > 0, path.Child("resourceClaims"))
	r.when(spec.Resources != nil, path.Child("resources"))
	r.when(spec.HostnameOverride != nil, path.Child("hostnameOverride"))
	if _, ok := Priority(spec.PriorityClassName); !ok {
		r.errs = append(r.errs, field.Forbidden(path.Child("priorityClassName"),
			fmt.Sprintf("no PriorityClass with name %v was found: Podium knows only %s and %s", spec.PriorityClassName, SystemClusterCritical, SystemNodeCritical)))
	}
	if os := spec.OS; os != nil && os.Name != corev1.Linux {
		r.errs = append(r.errs, field.NotSupported(path.Child("os", "name"), os.Name, []corev1.OSName{corev1.Linux}))
	}
	r.podSecurity(spec.SecurityContext, path.Child("securityContext"))
	r.affinity(spec.Affinity, path.Child("affinity"))
	for i, c := range spec.TopologySpreadConstraints {
		r.when(c.WhenUnsatisfiable == corev1.DoNotSchedule, path.Child("topologySpreadConstraints").Index(i))
	}
	for i := range spec.InitContainers {
		r.container(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		r.container(&spec.Containers[i], path.Child("containers").Index(i))
	}
	return r.errs
}

func (r *refusals) affinity(a *corev1.Affinity, path *field.Path) {
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	if a == nil {
		return
	}
	if p := a.PodAffinity; p != nil {
		r.when(len(p.RequiredDuringSchedulingIgnoredDuringExecution) > 0, path.Child("podAffinity", required))
	}
	if p := a.PodAntiAffinity; p != nil {
		r.when(len(p.RequiredDuringSchedulingIgnoredDuringExecution) > 0, path.Child("podAntiAffinity", required))
	}
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
	r.when(c.RestartPolicy != nil, path.Child("restartPolicy"))
	r.when(len(c.RestartPolicyRules) > 0, path.Child("restartPolicyRules"))
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

// otherSources names the sources of a volume that Podium has no code for.
func otherSources(s *corev1.VolumeSource) []string {
	known := corev1.VolumeSource{
		EmptyDir: s.EmptyDir, HostPath: s.HostPath, Secret: s.Secret,
		ConfigMap: s.ConfigMap, DownwardAPI: s.DownwardAPI, Projected: s.Projected,
	}
	if *s == known {
		return nil
	}
	var names []string
	all, ours := reflect.ValueOf(*s), reflect.ValueOf(known)
	for i := range all.NumField() {
		if all.Field(i).Pointer() != ours.Field(i).Pointer() {
			name, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// Warnings says what is accepted, since ordinary manifests carry it, though
// it has no effect here, and what upstream warns of.
func Warnings(spec *corev1.PodSpec, path *field.Path) []string {
	var out []string
	warn := func(set bool, path *field.Path, text string) {
		if set {
			out = append(out, path.String()+": "+text)
		}
	}
	const noEffect = "Podium's scheduler does not consider this preference"
	if a := spec.Affinity; a != nil {
		const preferred = "preferredDuringSchedulingIgnoredDuringExecution"
		at := path.Child("affinity")
		warn(a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0, at.Child("podAffinity", preferred), noEffect)
		warn(a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0, at.Child("podAntiAffinity", preferred), noEffect)
	}
	for i, c := range spec.TopologySpreadConstraints {
		warn(c.WhenUnsatisfiable == corev1.ScheduleAnyway, path.Child("topologySpreadConstraints").Index(i), noEffect)
	}
	warn(spec.PreemptionPolicy != nil && *spec.PreemptionPolicy == corev1.PreemptLowerPriority, path.Child("preemptionPolicy"), "Podium's scheduler does not preempt pods")
	out = append(out, pullSecretWarnings(spec.ImagePullSecrets, path.Child("imagePullSecrets"))...)
	for i := range spec.Containers {
		at := path.Child("containers").Index(i)
		warn(len(spec.Containers[i].ResizePolicy) > 0, at.Child("resizePolicy"), "Podium does not resize running containers")
		out = append(out, duplicateEnv(spec.Containers[i].Env, at.Child("env"))...)
	}
	for i := range spec.InitContainers {
		out = append(out, duplicateEnv(spec.InitContainers[i].Env, path.Child("initContainers").Index(i).Child("env"))...)
	}
	return out
}

// TemplateWarnings are those of the pods to come.
func TemplateWarnings(t *corev1.PodTemplateSpec, path *field.Path) []string {
	return append(Warnings(&t.Spec, path.Child("spec")), appArmorTemplateWarnings(t.Annotations, &t.Spec, path)...)
}

// pullSecretWarnings: upstream accepts names that are empty or repeated.
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

// duplicateEnv: the last of several variables of one name wins, which is
// seldom what was meant.
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
