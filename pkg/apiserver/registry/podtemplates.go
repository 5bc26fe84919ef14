package registry

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// podTemplates are pod specs that clients keep; no controller acts on them.
func podTemplates(k *scheme.Kind, cfg Config) *Kind {
	path := field.NewPath("template")
	return Of[*corev1.PodTemplate]{
		Default: func(t *corev1.PodTemplate) { podspec.Default(&t.Template.Spec) },
		Prepare: counted(func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template }),
		Validate: validatePrivileged(cfg, validatePodTemplate, func(t *corev1.PodTemplate) (*corev1.PodSpec, *field.Path) {
			return &t.Template.Spec, path.Child("spec")
		}),
		Warnings: func(new, _ *corev1.PodTemplate) []string { return podspec.TemplateWarnings(&new.Template, path) },
		Columns: columns(
			column("Containers", "Names of each container in the template."),
			column("Images", "Images referenced by each container in the template."),
			column("Pod Labels", "The labels for the pod template."),
		),
		Row: func(t *corev1.PodTemplate, _ time.Time) []any {
			cells := templateCells(&t.Template, nil)
			return []any{t.Name, cells[0], cells[1], formatLabels(t.Template.Labels)}
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func validatePodTemplate(new, old *corev1.PodTemplate) field.ErrorList {
	if old != nil && apiequality.Semantic.DeepEqual(new.Template, old.Template) {
		return nil // what was accepted once stays accepted
	}
	return podspec.ValidateAnyTemplate(&new.Template, field.NewPath("template"))
}
