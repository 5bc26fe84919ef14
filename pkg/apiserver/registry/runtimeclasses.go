package registry

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func runtimeClasses(k *scheme.Kind, _ Config) *Kind {
	return Of[*nodev1.RuntimeClass]{
		Validate: validateRuntimeClass,
		Columns:  columns(column("Handler", nodev1.RuntimeClass{}.SwaggerDoc()["handler"]), ageColumn()),
		Row: func(c *nodev1.RuntimeClass, now time.Time) []any {
			return []any{c.Name, c.Handler, age(c.CreationTimestamp, now)}
		},
	}.Kind(k)
}

func validateRuntimeClass(new, old *nodev1.RuntimeClass) field.ErrorList {
	handler := field.NewPath("handler")
	errs := fieldcheck.Invalid(apivalidation.NameIsDNSLabel(new.Handler, false), handler, new.Handler)
	if new.Overhead != nil {
		errs = append(errs, podspec.ValidateResources(&corev1.ResourceRequirements{Limits: new.Overhead.PodFixed}, field.NewPath("overhead"))...)
	}
	if s := new.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, podspec.ValidateTolerations(s.Tolerations, path.Child("tolerations"))...)
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(new.Handler, old.Handler, handler)...)
	}
	return errs
}
