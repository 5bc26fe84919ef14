package registry

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

func deviceClasses(k *scheme.Kind, v deviceChecks) *Kind {
	return Of[*resourcev1.DeviceClass]{
		Prepare:  counted(func(c *resourcev1.DeviceClass) *resourcev1.DeviceClassSpec { return &c.Spec }),
		Validate: v.class,
		Columns:  columns(ageColumn()),
		Row: func(c *resourcev1.DeviceClass, now time.Time) []any {
			return []any{c.Name, age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Kind(k)
}

func (v deviceChecks) class(new, old *resourcev1.DeviceClass) field.ErrorList {
	path := field.NewPath("spec")
	var known []resourcev1.DeviceSelector
	if old != nil {
		known = old.Spec.Selectors
	}
	errs := v.selectors(new.Spec.Selectors, known, path.Child("selectors"))
	errs = append(errs, validateList(new.Spec.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClassConfiguration, path *field.Path) field.ErrorList {
			return validateDeviceConfiguration(&c.DeviceConfiguration, path)
		})...)
	if name := new.Spec.ExtendedResourceName; name != nil && !extendedResource(*name) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}

// extendedResource reports whether a resource is of a vendor: not native, and not the
// name of a quota.
func extendedResource(name string) bool {
	if !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
