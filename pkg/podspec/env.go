package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// Valid field paths of fieldRef in environment variables and in volumes.
// Environment variables refer to single labels and annotations by key, volumes also
// to all of them.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	volumeFields = []string{
		"metadata.annotations", "metadata.labels",
		"metadata.name", "metadata.namespace", "metadata.uid",
	}
	resourceFields = []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
)

func validateEnv(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		v, at := &vars[i], path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, fieldcheck.Invalid(validation.IsRelaxedEnvVarName(v.Name), at.Child("name"), v.Name)...)
		}
		if v.ValueFrom != nil {
			errs = append(errs, validateEnvSource(v, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func validateEnvSource(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	from, sources := v.ValueFrom, 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(from.FieldRef, envFields, true, path.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, validateResourceRef(from.ResourceFieldRef, false, path.Child("resourceFieldRef"))...)
	}
	if from.ConfigMapKeyRef != nil {
		sources++
		errs = append(errs, validateKeyRef(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, path.Child("configMapKeyRef"))...)
	}
	if from.SecretKeyRef != nil {
		sources++
		errs = append(errs, validateKeyRef(from.SecretKeyRef.Name, from.SecretKeyRef.Key, path.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
		errs = append(errs, refused(path.Child("fileKeyRef")))
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		s, at := &sources[i], path.Index(i)
		if s.Prefix != "" {
			errs = append(errs, fieldcheck.Invalid(validation.IsRelaxedEnvVarName(s.Prefix), at.Child("prefix"), s.Prefix)...)
		}
		if s.ConfigMapRef != nil && s.ConfigMapRef.Name == "" {
			errs = append(errs, field.Required(at.Child("configMapRef", "name"), ""))
		}
		if s.SecretRef != nil && s.SecretRef.Name == "" {
			errs = append(errs, field.Required(at.Child("secretRef", "name"), ""))
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, fieldcheck.Invalid(validation.IsConfigMapKey(key), path.Child("key"), key)...)
}

// validateFieldRef validates a field reference of the downward API. byKey allows
// single labels and annotations, as in metadata.labels['key'].
func validateFieldRef(ref *corev1.ObjectFieldSelector, valid []string, byKey bool, path *field.Path) field.ErrorList {
	if ref.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	at := path.Child("fieldPath")
	if ref.FieldPath == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(at, ref.FieldPath, fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", ref.APIVersion))}
	}
	if whole, key, ok := subscript(ref.FieldPath); ok {
		if !byKey {
			return field.ErrorList{field.Invalid(at, ref.FieldPath, "does not support subscript")}
		}
		switch whole {
		case "metadata.annotations":
			return fieldcheck.Invalid(validation.IsQualifiedName(strings.ToLower(key)), at, key)
		case "metadata.labels":
			return fieldcheck.Invalid(validation.IsQualifiedName(key), at, key)
		}
		return field.ErrorList{field.Invalid(at, whole, "does not support subscript")}
	}
	switch {
	case slices.Contains(valid, ref.FieldPath):
		return nil
	case !slices.Contains(envFields, ref.FieldPath) && !slices.Contains(volumeFields, ref.FieldPath):
		return field.ErrorList{field.Invalid(at, ref.FieldPath, "error converting fieldPath: field label not supported: "+ref.FieldPath)}
	}
	return field.ErrorList{field.NotSupported(at, ref.FieldPath, valid)}
}

// subscript splits a['b'] into a and b.
func subscript(path string) (whole, key string, ok bool) {
	whole, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return path, "", false
	}
	return whole, strings.TrimSuffix(rest, "']"), true
}

func validateResourceRef(ref *corev1.ResourceFieldSelector, inVolume bool, path *field.Path) field.ErrorList {
	switch {
	case inVolume && ref.ContainerName == "":
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	case ref.Resource == "":
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	case !slices.Contains(resourceFields, ref.Resource):
		return field.ErrorList{field.NotSupported(path.Child("resource"), ref.Resource, resourceFields)}
	}
	return validateDivisor(ref, path.Child("divisor"))
}

var (
	cpuDivisors  = []string{"1m", "1"}
	byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func validateDivisor(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	if ref.Divisor.IsZero() {
		return nil
	}
	_, resource, _ := strings.Cut(ref.Resource, ".")
	valid, what := byteDivisors, resource
	switch resource {
	case "cpu":
		valid = cpuDivisors
	case "ephemeral-storage":
		what = "local ephemeral storage"
	}
	if slices.Contains(valid, ref.Divisor.String()) {
		return nil
	}
	list := strings.Join(valid, ", ")
	if resource == "cpu" {
		list = "1m and 1"
	}
	return field.ErrorList{field.Invalid(path, ref.Divisor,
		fmt.Sprintf("only divisor's values %s are supported with the %s resource", list, what))}
}
