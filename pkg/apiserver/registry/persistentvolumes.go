package registry

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

func persistentVolumes(k *scheme.Kind, cfg Config) *Kind {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	life := lifecycle[*corev1.PersistentVolume, corev1.PersistentVolumeSpec, corev1.PersistentVolumeStatus]{
		parts: func(v *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, *corev1.PersistentVolumeStatus) {
			return &v.Spec, &v.Status
		},
		uncounted: true,
	}
	return Of[*corev1.PersistentVolume]{
		Default: defaultPersistentVolume,
		Prepare: func(ctx context.Context, b Backend, new, old *corev1.PersistentVolume) error {
			err := life.prepare(ctx, b, new, old)
			if old == nil {
				new.Status.Phase = corev1.VolumePending
				stampPhase(new, nil, cfg.Now())
			}
			return err
		},
		Validate: validatePersistentVolume,
		Warnings: func(new, _ *corev1.PersistentVolume) []string {
			out := storageWarnings(new.Annotations, new.Spec.Capacity, "spec.capacity")
			if new.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
				out = append(out, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
			}
			return out
		},
		Columns: append(columns(column("Capacity", spec["capacity"]), column("Access Modes", spec["accessModes"]),
			column("Reclaim Policy", spec["persistentVolumeReclaimPolicy"]), column("Status", status["phase"]), column("Claim", spec["claimRef"]),
			column("StorageClass", "StorageClass of the pv"), column("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
			column("Reason", status["reason"]), ageColumn()), wide(column("VolumeMode", spec["volumeMode"]))...),
		Row: persistentVolumeRow,
		Fields: func(v *corev1.PersistentVolume) fields.Set {
			return fields.Set{"name": v.Name, volumebinding.HomeField: volumebinding.Home(v)}
		},
		Indexed:                  []string{volumebinding.HomeField},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources: []*Subresource{
			life.status(k, func(new, old *corev1.PersistentVolume) { stampPhase(new, old, cfg.Now()) }, nil),
		},
	}.Kind(k)
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	orDefault(&v.Status.Phase, corev1.VolumePending)
	orDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	if v.Spec.VolumeMode == nil {
		v.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	if h := v.Spec.HostPath; h != nil && h.Type == nil {
		h.Type = new(corev1.HostPathUnset)
	}
	if i := v.Spec.ISCSI; i != nil {
		orDefault(&i.ISCSIInterface, "default")
	}
}

// stampPhase sets the time of a new phase unless the writer has set one. old is nil
// on create.
func stampPhase(new, old *corev1.PersistentVolume, now time.Time) {
	if old != nil && (new.Status.Phase == old.Status.Phase || !new.Status.LastPhaseTransitionTime.Equal(old.Status.LastPhaseTransitionTime)) {
		return
	}
	stamp := metav1.NewTime(now)
	new.Status.LastPhaseTransitionTime = &stamp
}

// betaStorageClass is the annotation that named the class of a volume or a claim
// before the field did.
const betaStorageClass = corev1.BetaStorageClassAnnotation

// storageWarnings returns upstream's warnings about the annotations and the amount
// of storage of a volume or a claim.
func storageWarnings(annotations map[string]string, amounts corev1.ResourceList, path string) (out []string) {
	if _, set := annotations[betaStorageClass]; set {
		out = append(out, fmt.Sprintf("metadata.annotations[%s]: deprecated since v1.8; use \"storageClassName\" attribute instead", betaStorageClass))
	}
	if q := amounts[corev1.ResourceStorage]; q.MilliValue()%1000 != 0 {
		out = append(out, fmt.Sprintf("%s[storage]: fractional byte value %q is invalid, must be an integer", path, q.String()))
	}
	return out
}

func validatePersistentVolume(new, old *corev1.PersistentVolume) field.ErrorList {
	at := field.NewPath("spec")
	spec := &new.Spec
	errs := podspec.ValidateAccessModes(spec.AccessModes, "", at.Child("accessModes"))
	errs = append(errs, validateCapacity(spec.Capacity, at.Child("capacity"))...)
	reclaim := at.Child("persistentVolumeReclaimPolicy")
	errs = append(errs, fieldcheck.Supported(spec.PersistentVolumeReclaimPolicy, reclaim,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	if a := spec.NodeAffinity; a != nil {
		errs = append(errs, validateVolumeAffinity(a, at.Child("nodeAffinity"))...)
	}
	errs = append(errs, validateVolumeSource(spec, new.Name, at)...)
	if spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(reclaim, "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if spec.StorageClassName != "" {
		errs = append(errs, validateSubdomain(spec.StorageClassName, at.Child("storageClassName"))...)
	}
	errs = append(errs, podspec.ValidateVolumeMode(spec.VolumeMode, at)...)
	if class := spec.VolumeAttributesClassName; class != nil {
		if *class == "" {
			errs = append(errs, field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			errs = append(errs, validateSubdomain(*class, at.Child("volumeAttributesClassName"))...)
		}
		if spec.CSI == nil {
			errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
	if old != nil {
		errs = append(errs, validateVolumeChange(spec, &old.Spec, at)...)
	}
	return errs
}

func validateCapacity(amounts corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(amounts) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if _, ok := amounts[corev1.ResourceStorage]; !ok || len(amounts) > 1 {
		errs = append(errs, field.NotSupported(at, amounts, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range amounts {
		errs = append(errs, validateBytes(q, at.Key(string(name)))...)
		errs = append(errs, podspec.ValidatePositive(q, at.Key(string(name)))...)
	}
	return errs
}

// validateBytes checks that a quantity is not negative.
func validateBytes(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, q.Value(), "must be a valid resource quantity")}
	}
	return nil
}

func validateVolumeAffinity(a *corev1.VolumeNodeAffinity, at *field.Path) field.ErrorList {
	if a.Required == nil {
		return field.ErrorList{field.Required(at.Child("required"), "must specify required node constraints")}
	}
	return podspec.ValidateNodeSelector(a.Required, at.Child("required"))
}

// validateVolumeSource checks that the volume of that name has one source, and one that
// Podium supports.
func validateVolumeSource(spec *corev1.PersistentVolumeSpec, name string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	source := func(set bool, kind string, check func(at *field.Path) field.ErrorList) {
		switch {
		case !set:
			return
		case sources > 0:
			errs = append(errs, field.Forbidden(at.Child(kind), "may not specify more than 1 volume type"))
		default:
			errs = append(errs, check(at.Child(kind))...)
		}
		sources++
	}
	source(spec.HostPath != nil, "hostPath", func(at *field.Path) field.ErrorList { return podspec.ValidateHostPath(spec.HostPath, at) })
	source(spec.NFS != nil, "nfs", func(at *field.Path) field.ErrorList { return podspec.ValidateNFS(spec.NFS, at) })
	source(spec.ISCSI != nil, "iscsi", func(at *field.Path) field.ErrorList { return podspec.ValidateISCSIVolume(spec.ISCSI, name, at) })
	source(spec.Local != nil, "local", func(at *field.Path) field.ErrorList { return validateLocal(spec, at) })
	source(spec.CSI != nil, "csi", func(at *field.Path) field.ErrorList { return validateCSISource(spec.CSI, at) })
	known := corev1.PersistentVolumeSource{HostPath: spec.HostPath, NFS: spec.NFS, ISCSI: spec.ISCSI, Local: spec.Local, CSI: spec.CSI}
	for _, name := range podspec.FieldsBesides(spec.PersistentVolumeSource, known) {
		source(true, name, func(at *field.Path) field.ErrorList { return field.ErrorList{field.Forbidden(at, podspec.Unsupported)} })
	}
	if sources == 0 {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

// validateLocal validates a directory of a node, which the volume must name.
func validateLocal(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Local.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	} else {
		errs = append(errs, podspec.ValidateNoBacksteps(spec.Local.Path, at.Child("path"))...)
	}
	if a := spec.NodeAffinity; a == nil || a.Required == nil {
		errs = append(errs, field.Required(field.NewPath("spec", "nodeAffinity"), "Local volume requires node affinity"))
	}
	return errs
}

func validateCSISource(c *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := fieldcheck.DriverName(c.Driver, at.Child("driver"))
	if c.VolumeHandle == "" {
		errs = append(errs, field.Required(at.Child("volumeHandle"), ""))
	}
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef}, {"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef}, {"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		if secret.ref == nil {
			continue
		}
		at := at.Child(secret.name)
		if secret.ref.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, validateSubdomain(secret.ref.Name, at.Child("name"))...)
		}
		if secret.ref.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		} else {
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(secret.ref.Namespace), at.Child("namespace"), secret.ref.Namespace)...)
		}
	}
	return errs
}

// validateInlineVolume validates the volume of a VolumeAttachment that has no
// PersistentVolume.
func validateInlineVolume(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const inline = " in the context of inline volumes"
	var errs field.ErrorList
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name), "may not be specified"+inline))
		}
	}
	forbid(spec.ClaimRef != nil, "claimRef")
	forbid(len(spec.Capacity) > 0, "capacity")
	if spec.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified"+inline))
	}
	errs = append(errs, podspec.ValidateAccessModes(spec.AccessModes, "", at.Child("accessModes"))...)
	if p := spec.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain"+inline))
	}
	forbid(spec.NodeAffinity != nil, "nodeAffinity")
	errs = append(errs, validateVolumeSource(spec, "", at)...)
	forbid(spec.StorageClassName != "", "storageClassName")
	if m := spec.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem"+inline))
	}
	return errs
}

// validateVolumeChange allows an expansion secret and a node affinity to be added.
func validateVolumeChange(new, old *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	source := new.PersistentVolumeSource.DeepCopy()
	if source.CSI != nil && old.CSI != nil && old.CSI.ControllerExpandSecretRef == nil {
		source.CSI.ControllerExpandSecretRef = nil
	}
	if !apiequality.Semantic.DeepEqual(*source, old.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(at.Child("persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+podspec.Changes(old.PersistentVolumeSource, source)))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(new.VolumeMode, old.VolumeMode, field.NewPath("volumeMode"))...)
	if old.NodeAffinity != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(new.NodeAffinity, old.NodeAffinity, field.NewPath("nodeAffinity"))...)
	}
	if old.VolumeAttributesClassName != nil && new.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(at.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

func persistentVolumeRow(v *corev1.PersistentVolume, now time.Time) []any {
	size, claim, phase := v.Spec.Capacity[corev1.ResourceStorage], "", string(v.Status.Phase)
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	return []any{v.Name, size.String(), formatModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		storageClassOf(v.Annotations, &v.Spec.StorageClassName), orUnsetPtr(v.Spec.VolumeAttributesClassName), v.Status.Reason,
		age(v.CreationTimestamp, now), orUnsetPtr(v.Spec.VolumeMode)}
}

// storageClassOf returns the class that an annotation or the field names.
func storageClassOf(annotations map[string]string, name *string) string {
	if class, set := annotations[betaStorageClass]; set {
		return class
	}
	if name == nil {
		return ""
	}
	return *name
}

// formatModes returns the short names of the modes: RWO,ROX.
func formatModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}
