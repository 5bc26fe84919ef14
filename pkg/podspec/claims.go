package podspec

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/storage/ephemeral"

	"podium/pkg/fieldcheck"
)

// validateEphemeral validates the template of the claim that is made for a pod.
func validateEphemeral(e *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("volumeClaimTemplate")
	if e.VolumeClaimTemplate == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateClaimMeta(&e.VolumeClaimTemplate.ObjectMeta, at.Child("metadata"))
	return append(errs, ValidateClaimSpec(&e.VolumeClaimTemplate.Spec, nil, at.Child("spec"))...)
}

// validateClaimMeta checks that only annotations and labels are set: the rest of the
// claim's metadata follows from the pod.
func validateClaimMeta(m *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(m.Labels, at.Child("labels"))...)
	rest := *m
	rest.Annotations, rest.Labels = nil, nil
	for v, i := reflect.ValueOf(rest), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsZero() {
			errs = append(errs, field.Forbidden(at.Child(v.Type().Field(i).Name), "cannot be set for an ephemeral volume"))
		}
	}
	return errs
}

// ValidateClaimNames checks the claims that are made for the ephemeral volumes of a pod:
// their names, and that no other volume of the pod uses them.
func ValidateClaimNames(pod *corev1.Pod, volumes *field.Path) field.ErrorList {
	var errs field.ErrorList
	if pod.Name == "" {
		return nil // reported elsewhere
	}
	made := map[string]bool{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Name == "" {
			continue
		}
		name := ephemeral.VolumeClaimName(pod, v)
		made[name] = true
		for _, msg := range apivalidation.NameIsDNSSubdomain(name, false) {
			errs = append(errs, field.Invalid(volumes.Index(i).Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", name, msg)))
		}
	}
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil && made[claim.ClaimName] {
			errs = append(errs, field.Invalid(volumes.Index(i).Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

func validateObjectName(name string, path *field.Path) field.ErrorList {
	return fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(name, false), path, name)
}

// ValidateClaimSpec validates the spec of a claim. old is nil on create.
func ValidateClaimSpec(spec, old *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	errs := ValidateAccessModes(spec.AccessModes, "at least 1 access mode is required", path.Child("accessModes"))
	if spec.Selector != nil {
		var lenient metavalidation.LabelSelectorValidationOptions
		lenient.AllowInvalidLabelValueInSelector = old != nil && len(metavalidation.ValidateLabelSelector(old.Selector, lenient, nil)) > 0
		errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, lenient, path.Child("selector"))...)
	}
	size := path.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := spec.Resources.Requests[corev1.ResourceStorage]; ok {
		errs = append(errs, ValidatePositive(q, size)...)
	} else {
		errs = append(errs, field.Required(size, ""))
	}
	if class := spec.StorageClassName; class != nil && *class != "" {
		errs = append(errs, validateObjectName(*class, path.Child("storageClassName"))...)
	}
	errs = append(errs, ValidateVolumeMode(spec.VolumeMode, path)...)
	errs = append(errs, validateDataSources(spec, path)...)
	if class := spec.VolumeAttributesClassName; class != nil && *class != "" {
		errs = append(errs, validateObjectName(*class, path.Child("volumeAttributesClassName"))...)
	}
	return errs
}

func validateDataSources(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		errs = append(errs, validateDataSource(source.APIGroup, source.Kind, source.Name, path.Child("dataSource"))...)
	}
	if ref == nil {
		return errs
	}
	errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef"))...)
	if ref.Namespace != nil && *ref.Namespace != "" {
		return append(errs, field.Forbidden(path.Child("dataSourceRef", "namespace"), Unsupported))
	}
	if source != nil && (source.Kind != ref.Kind || source.Name != ref.Name || !apiequality.Semantic.DeepEqual(source.APIGroup, ref.APIGroup)) {
		errs = append(errs, field.Invalid(path, path.Child("dataSource").String(), "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(group *string, kind, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), ""))
	}
	switch {
	case group != nil && *group != "":
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(*group), path.Child("apiGroup"), *group)...)
	case kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// ValidateAccessModes checks that there is a mode, and that ReadWriteOncePod is the
// only one.
func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, missing string, at *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(at, missing)}
	}
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	var errs field.ErrorList
	alone, shared := false, false
	for _, mode := range modes {
		errs = append(errs, fieldcheck.Supported(mode, at, known...)...)
		alone = alone || mode == corev1.ReadWriteOncePod
		shared = shared || mode != corev1.ReadWriteOncePod && slices.Contains(known, mode)
	}
	if alone && shared {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// ValidateVolumeMode validates the volumeMode of a spec.
func ValidateVolumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return fieldcheck.Supported(*mode, at.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// ValidatePositive checks that a quantity is above zero.
func ValidatePositive(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
	}
	return nil
}
