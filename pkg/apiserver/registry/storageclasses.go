package registry

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// The annotations of the class that claims without one get.
const (
	defaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	defaultBetaStorageClass = "storageclass.beta.kubernetes.io/is-default-class"
	defaultAttributesClass  = "volumeattributesclass.alpha.kubernetes.io/is-default-class"
)

// Limits of the parameters of a class.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10 // bytes
)

func storageClasses(k *scheme.Kind, _ Config) *Kind {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return Of[*storagev1.StorageClass]{
		Default: func(c *storagev1.StorageClass) {
			if c.ReclaimPolicy == nil {
				c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
			}
			if c.VolumeBindingMode == nil {
				c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
			}
		},
		Validate: validateStorageClass,
		Columns: columns(column("Provisioner", doc["provisioner"]), column("ReclaimPolicy", doc["reclaimPolicy"]),
			column("VolumeBindingMode", doc["volumeBindingMode"]), column("AllowVolumeExpansion", doc["allowVolumeExpansion"]), ageColumn()),
		Row: func(c *storagev1.StorageClass, now time.Time) []any {
			return []any{className(c.Name, c.Annotations, defaultStorageClass, defaultBetaStorageClass), c.Provisioner, string(*c.ReclaimPolicy),
				string(*c.VolumeBindingMode), isTrue(c.AllowVolumeExpansion), age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Kind(k)
}

// className returns the printed name of a class, which shows whether an annotation
// makes it the default.
func className(name string, annotations map[string]string, keys ...string) string {
	if slices.ContainsFunc(keys, func(key string) bool { return annotations[key] == "true" }) {
		return name + " (default)"
	}
	return name
}

func isTrue(b *bool) bool { return b != nil && *b }

func validateStorageClass(new, old *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(new.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(new.Parameters, field.NewPath("parameters"))...)
	policy, mode := field.NewPath("reclaimPolicy"), field.NewPath("volumeBindingMode")
	if *new.ReclaimPolicy != "" {
		errs = append(errs, fieldcheck.Supported(*new.ReclaimPolicy, policy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	errs = append(errs, fieldcheck.Supported(*new.VolumeBindingMode, mode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	errs = append(errs, validateTopologies(new.AllowedTopologies, field.NewPath("allowedTopologies"))...)
	if old == nil {
		return errs
	}
	errs = append(errs, keepParameters(new.Parameters, old.Parameters)...)
	if new.Provisioner != old.Provisioner {
		errs = append(errs, field.Forbidden(field.NewPath("provisioner"), "updates to provisioner are forbidden."))
	}
	if *new.ReclaimPolicy != *old.ReclaimPolicy {
		errs = append(errs, field.Forbidden(policy, "updates to reclaimPolicy are forbidden."))
	}
	return append(errs, apivalidation.ValidateImmutableField(new.VolumeBindingMode, old.VolumeBindingMode, mode)...)
}

func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	name = strings.ToLower(name)
	return fieldcheck.Invalid(validation.IsQualifiedName(name), path, name)
}

// validateParameters bounds what a driver gets with each volume of a class.
func validateParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	if _, empty := parameters[""]; empty {
		errs = append(errs, field.Invalid(path, "", "field can not be empty."))
	}
	if sizeOf(parameters) > maxParametersSize {
		errs = append(errs, field.TooLong(path, "", maxParametersSize))
	}
	return errs
}

// sizeOf returns the number of bytes in keys and values.
func sizeOf(m map[string]string) (size int) {
	for key, value := range m {
		size += len(key) + len(value)
	}
	return size
}

func keepParameters(new, old map[string]string) field.ErrorList {
	if maps.Equal(new, old) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden.")}
}

func validateTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var seen []map[string][]string
	for i := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		term, bad := validateTopology(&terms[i], at)
		errs = append(errs, bad...)
		for _, other := range seen {
			if apiequality.Semantic.DeepEqual(term, other) {
				errs = append(errs, field.Duplicate(at, ""))
			}
		}
		seen = append(seen, term)
	}
	return errs
}

// validateTopology validates a term and returns its values by key, in order.
func validateTopology(term *corev1.TopologySelectorTerm, path *field.Path) (map[string][]string, field.ErrorList) {
	var errs field.ErrorList
	byKey := map[string][]string{}
	for i, r := range term.MatchLabelExpressions {
		at := path.Index(i)
		values := at.Child("values")
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, ""))
		}
		for j, value := range r.Values {
			if slices.Contains(r.Values[:j], value) {
				errs = append(errs, field.Duplicate(values.Index(j), value))
			}
		}
		errs = append(errs, metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
		if _, again := byKey[r.Key]; again {
			errs = append(errs, field.Duplicate(at.Child("key"), r.Key))
		}
		byKey[r.Key] = slices.Sorted(slices.Values(r.Values))
	}
	return byKey, errs
}

func volumeAttributesClasses(k *scheme.Kind, _ Config) *Kind {
	return Of[*storagev1.VolumeAttributesClass]{
		Validate: validateAttributesClass,
		Columns:  columns(column("DriverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), ageColumn()),
		Row: func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
			return []any{className(c.Name, c.Annotations, defaultAttributesClass), c.DriverName, age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Kind(k)
}

func validateAttributesClass(new, old *storagev1.VolumeAttributesClass) field.ErrorList {
	driver, parameters := field.NewPath("driverName"), field.NewPath("parameters")
	var errs field.ErrorList
	if old != nil {
		if new.DriverName != old.DriverName {
			errs = append(errs, field.Forbidden(driver, "updates to driverName are forbidden."))
		}
		errs = append(errs, keepParameters(new.Parameters, old.Parameters)...)
	}
	errs = append(errs, validateProvisioner(new.DriverName, driver)...)
	errs = append(errs, validateParameters(new.Parameters, parameters)...)
	if len(new.Parameters) == 0 {
		errs = append(errs, field.Required(parameters, "must contain at least one key/value pair"))
	}
	return errs
}
