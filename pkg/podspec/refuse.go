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
	if os := spec.OS; os != nil && os.Name != corev1.Linux {
		r.errs = append(r.errs, field.NotSupported(path.Child("os", "name"), os.Name, []corev1.OSName{corev1.Linux}))
	}
	r.when(len(spec.EvictionResponders) > 0, path.Child("evictionResponders"))
	for i := range spec.Volumes {
		r.volume(&spec.Volumes[i].VolumeSource, path.Child("volumes").Index(i))
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
}

func (r *refusals) container(c *corev1.Container, path *field.Path) {
	r.lifecycle(c.Lifecycle, path.Child("lifecycle"))
	r.probe(c.LivenessProbe, path.Child("livenessProbe"))
	r.probe(c.ReadinessProbe, path.Child("readinessProbe"))
	r.probe(c.StartupProbe, path.Child("startupProbe"))
	for i := range c.VolumeMounts {
		r.when(len(c.VolumeMounts[i].BindMountOptions) > 0, path.Child("volumeMounts").Index(i).Child("bindMountOptions"))
	}
	if s := c.SecurityContext; s != nil {
		r.when(s.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"))
	}
}

func (r *refusals) lifecycle(l *corev1.Lifecycle, path *field.Path) {
	if l == nil {
		return
	}
	if l.PostStart != nil {
		r.httpGet(l.PostStart.HTTPGet, path.Child("postStart", "httpGet"))
	}
	if l.PreStop != nil {
		r.httpGet(l.PreStop.HTTPGet, path.Child("preStop", "httpGet"))
	}
}

func (r *refusals) probe(p *corev1.Probe, path *field.Path) {
	if p == nil {
		return
	}
	r.httpGet(p.HTTPGet, path.Child("httpGet"))
	r.when(p.GRPC != nil && p.GRPC.Mode != nil, path.Child("grpc", "mode"))
}

func (r *refusals) httpGet(h *corev1.HTTPGetAction, path *field.Path) {
	r.when(h != nil && h.Protocol != nil, path.Child("protocol"))
}

// volume refuses modes and owners of files that are not implemented.
func (r *refusals) volume(s *corev1.VolumeSource, path *field.Path) {
	r.when(s.EmptyDir != nil && s.EmptyDir.Mode != nil, path.Child("emptyDir", "mode"))
	if v := s.Secret; v != nil {
		r.files(v.DefaultUser, v.Items, path.Child("secret"))
	}
	if v := s.ConfigMap; v != nil {
		r.files(v.DefaultUser, v.Items, path.Child("configMap"))
	}
	if v := s.DownwardAPI; v != nil {
		r.downward(v.DefaultUser, v.Items, path.Child("downwardAPI"))
	}
	if s.Projected == nil {
		return
	}
	r.when(s.Projected.DefaultUser != nil, path.Child("projected", "defaultUser"))
	for i := range s.Projected.Sources {
		source, at := &s.Projected.Sources[i], path.Child("projected", "sources").Index(i)
		if v := source.Secret; v != nil {
			r.files(nil, v.Items, at.Child("secret"))
		}
		if v := source.ConfigMap; v != nil {
			r.files(nil, v.Items, at.Child("configMap"))
		}
		if v := source.DownwardAPI; v != nil {
			r.downward(nil, v.Items, at.Child("downwardAPI"))
		}
		if v := source.ServiceAccountToken; v != nil {
			r.when(v.User != nil, at.Child("serviceAccountToken", "user"))
		}
	}
}

func (r *refusals) files(user *int64, items []corev1.KeyToPath, path *field.Path) {
	r.when(user != nil, path.Child("defaultUser"))
	for i := range items {
		r.when(items[i].User != nil, path.Child("items").Index(i).Child("user"))
	}
}

func (r *refusals) downward(user *int64, items []corev1.DownwardAPIVolumeFile, path *field.Path) {
	r.when(user != nil, path.Child("defaultUser"))
	for i := range items {
		r.when(items[i].User != nil, path.Child("items").Index(i).Child("user"))
	}
}

// otherSources returns the names of the volume sources of s that Podium does not
// support.
func otherSources(s *corev1.VolumeSource) []string {
	known := corev1.VolumeSource{
		EmptyDir: s.EmptyDir, HostPath: s.HostPath, Secret: s.Secret,
		ConfigMap: s.ConfigMap, DownwardAPI: s.DownwardAPI, Projected: s.Projected, CSI: s.CSI, PersistentVolumeClaim: s.PersistentVolumeClaim, Ephemeral: s.Ephemeral,
		Image: s.Image, NFS: s.NFS, ISCSI: s.ISCSI,
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

// Warnings returns the warnings that upstream returns.
func Warnings(spec *corev1.PodSpec, path *field.Path) []string {
	var out []string
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"containers", spec.Containers}, {"initContainers", spec.InitContainers}} {
		for i := range list.containers {
			out = append(out, tcpHookWarnings(list.containers[i].Lifecycle, path.Child(list.name).Index(i).Child("lifecycle"))...)
		}
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

// tcpHookWarnings returns warnings for hooks that upstream accepts for compatibility,
// and that always fail.
func tcpHookWarnings(l *corev1.Lifecycle, path *field.Path) []string {
	if l == nil {
		return nil
	}
	const detail = ".tcpSocket: deprecated: lifecycle hooks do not support tcpSocket, the hook fails when it runs"
	var out []string
	if l.PostStart != nil && l.PostStart.TCPSocket != nil {
		out = append(out, path.Child("postStart").String()+detail)
	}
	if l.PreStop != nil && l.PreStop.TCPSocket != nil {
		out = append(out, path.Child("preStop").String()+detail)
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
