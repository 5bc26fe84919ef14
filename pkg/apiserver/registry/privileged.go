package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// validatePrivileged returns validate, which also rejects privileged containers if
// cfg.DenyPrivileged is set. pod returns the pod spec and its path.
func validatePrivileged[T scheme.Object](cfg Config, validate func(new, old T) field.ErrorList, pod func(T) (*corev1.PodSpec, *field.Path)) func(new, old T) field.ErrorList {
	if !cfg.DenyPrivileged {
		return validate
	}
	return func(new, old T) field.ErrorList {
		spec, path := pod(new)
		return append(validate(new, old), podspec.DenyPrivileged(spec, path)...)
	}
}

// templateSpec returns the pod spec of a template and its path.
func templateSpec(t *corev1.PodTemplateSpec) (*corev1.PodSpec, *field.Path) {
	return &t.Spec, field.NewPath("spec", "template", "spec")
}
