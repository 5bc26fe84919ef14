package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/request"
	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func persistentVolumeClaims(k *scheme.Kind, _ Config) *Kind {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	life := lifecycle[*corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimSpec, corev1.PersistentVolumeClaimStatus]{
		parts: func(c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaimSpec, *corev1.PersistentVolumeClaimStatus) {
			return &c.Spec, &c.Status
		},
		uncounted: true,
	}
	return Of[*corev1.PersistentVolumeClaim]{
		Default: func(c *corev1.PersistentVolumeClaim) {
			orDefault(&c.Status.Phase, corev1.ClaimPending)
			if c.Spec.VolumeMode == nil {
				c.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
			}
		},
		Prepare: func(ctx context.Context, b Backend, new, old *corev1.PersistentVolumeClaim) error {
			err := life.prepare(ctx, b, new, old)
			orDefault(&new.Status.Phase, corev1.ClaimPending)
			normalizeDataSource(ctx, &new.Spec, old)
			return err
		},
		Validate: validateClaim,
		Warnings: func(new, _ *corev1.PersistentVolumeClaim) []string {
			return storageWarnings(new.Annotations, new.Spec.Resources.Requests, "spec.resources.requests")
		},
		Columns: append(columns(column("Status", status["phase"]), column("Volume", spec["volumeName"]), column("Capacity", status["capacity"]),
			column("Access Modes", status["accessModes"]), column("StorageClass", "StorageClass of the pvc"),
			column("VolumeAttributesClass", "VolumeAttributesClass of the pvc"), ageColumn()), wide(column("VolumeMode", spec["volumeMode"]))...),
		Row:                      claimRow,
		Fields:                   func(c *corev1.PersistentVolumeClaim) fields.Set { return fields.Set{"name": c.Name} },
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources:             []*Subresource{life.status(k, dropVolumeHealth, validateClaimStatus)},
	}.Kind(k)
}

// dropVolumeHealth removes what upstream drops, too, unless a feature gate is on.
func dropVolumeHealth(new, _ *corev1.PersistentVolumeClaim) { new.Status.HealthStatus = nil }

// normalizeDataSource makes dataSource and dataSourceRef the same where one of them
// is unset. A dataSource that is neither a claim nor a snapshot is dropped, as
// upstream does for clients of the time before dataSourceRef.
func normalizeDataSource(ctx context.Context, spec *corev1.PersistentVolumeClaimSpec, old *corev1.PersistentVolumeClaim) {
	stored := old != nil && (old.Spec.DataSource != nil || old.Spec.DataSourceRef != nil)
	if s := spec.DataSource; s != nil && !stored && !copies(s) {
		spec.DataSource = nil
		request.Warn(ctx, "spec.dataSource: dropped: it is neither a PersistentVolumeClaim nor a VolumeSnapshot; use dataSourceRef")
	}
	switch source, ref := spec.DataSource, spec.DataSourceRef; {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case ref != nil && source == nil && ref.Namespace == nil:
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// copies reports whether a data source is a claim or a snapshot.
func copies(s *corev1.TypedLocalObjectReference) bool {
	switch s.Kind {
	case "PersistentVolumeClaim":
		return s.APIGroup == nil || *s.APIGroup == ""
	case "VolumeSnapshot":
		return s.APIGroup != nil && *s.APIGroup == "snapshot.storage.k8s.io"
	}
	return false
}

func validateClaim(new, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var before *corev1.PersistentVolumeClaimSpec
	if old != nil {
		before = &old.Spec
	}
	errs := podspec.ValidateClaimSpec(&new.Spec, before, field.NewPath("spec"))
	if old != nil {
		errs = append(errs, validateClaimChange(new, old)...)
	}
	return errs
}

// validateClaimChange checks that only these change: the volume, once; the class, if
// it was unset; and, of a bound claim, the requested size and the attributes class.
func validateClaimChange(new, old *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	now, was := new.Spec.DeepCopy(), &old.Spec
	if was.VolumeName == "" {
		now.VolumeName = ""
	}
	annotation, annotated := old.Annotations[betaStorageClass]
	next, kept := new.Annotations[betaStorageClass]
	named := was.StorageClassName == nil && now.StorageClassName != nil && (!annotated || *now.StorageClassName == annotation)
	if named {
		now.StorageClassName = nil
	}
	if moved := named && annotated && !kept; !moved && next != annotation {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations", betaStorageClass), next, apivalidation.FieldImmutableErrorMsg))
	}
	if new.Status.Phase == corev1.ClaimBound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		if now.VolumeAttributesClassName != nil {
			now.VolumeAttributesClassName = was.VolumeAttributesClassName
		}
	}
	if !apiequality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(path,
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+podspec.Changes(was, now)))
	}
	size, before := new.Spec.Resources.Requests[corev1.ResourceStorage], was.Resources.Requests[corev1.ResourceStorage]
	if has := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(new.Spec.VolumeMode, was.VolumeMode, field.NewPath("volumeMode"))...)
	return append(errs, validateAttributesChange(new.Spec.VolumeAttributesClassName, was.VolumeAttributesClassName, path.Child("volumeAttributesClassName"))...)
}

func validateAttributesChange(new, old *string, path *field.Path) field.ErrorList {
	switch {
	case old == nil || new != nil && *new == *old:
		return nil
	case new == nil:
		return field.ErrorList{field.Forbidden(path, "update from non-nil value to nil is forbidden")}
	case *new == "":
		return field.ErrorList{field.Forbidden(path, "update from non-nil value to an empty string is forbidden")}
	}
	return nil
}

func validateClaimStatus(new, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for name, q := range new.Status.Capacity {
		errs = append(errs, validateBytes(q, path.Child("capacity").Key(string(name)))...)
	}
	states := []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimControllerResizeInProgress,
		corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizePending,
	}
	at := path.Child("allocatedResourceStatus")
	for name, state := range new.Status.AllocatedResourceStatuses {
		errs = append(errs, validateClaimResource(name, at)...)
		if !slices.Contains(states, state) {
			errs = append(errs, field.NotSupported(at, name, states))
		}
	}
	for name, q := range new.Status.AllocatedResources {
		at := path.Child("allocatedResources")
		errs = append(errs, validateClaimResource(name, at)...)
		errs = append(errs, validateBytes(q, at.Key(string(name)))...)
	}
	return errs
}

// validateClaimResource checks that the resource is storage or one of a driver.
func validateClaimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if bad := validation.IsQualifiedName(string(name)); len(bad) > 0 {
		return fieldcheck.Invalid(bad, path, string(name))
	}
	if native := !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix); native {
		return fieldcheck.Supported(name, path, corev1.ResourceStorage)
	}
	return nil
}

func claimRow(c *corev1.PersistentVolumeClaim, now time.Time) []any {
	phase, capacity, modes := string(c.Status.Phase), "", ""
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	if c.Spec.VolumeName != "" {
		size := c.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), formatModes(c.Status.AccessModes)
	}
	return []any{c.Name, phase, c.Spec.VolumeName, capacity, modes, storageClassOf(c.Annotations, c.Spec.StorageClassName),
		orUnsetPtr(c.Spec.VolumeAttributesClassName), age(c.CreationTimestamp, now), orUnsetPtr(c.Spec.VolumeMode)}
}
