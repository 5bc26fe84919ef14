package registry

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func volumeAttachments(k *scheme.Kind, _ Config) *Kind {
	spec, status := storagev1.VolumeAttachmentSpec{}.SwaggerDoc(), storagev1.VolumeAttachmentStatus{}.SwaggerDoc()
	life := lifecycle[*storagev1.VolumeAttachment, storagev1.VolumeAttachmentSpec, storagev1.VolumeAttachmentStatus]{
		parts: func(a *storagev1.VolumeAttachment) (*storagev1.VolumeAttachmentSpec, *storagev1.VolumeAttachmentStatus) {
			return &a.Spec, &a.Status
		},
		uncounted: true,
	}
	attacher := column("Attacher", spec["attacher"])
	attacher.Format = "name"
	return Of[*storagev1.VolumeAttachment]{
		Prepare:  life.prepare,
		Validate: validateAttachment,
		Columns: columns(attacher, column("PV", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
			column("Node", spec["nodeName"]), boolean("Attached", status["attached"]), ageColumn()),
		Row: func(a *storagev1.VolumeAttachment, now time.Time) []any {
			volume := ""
			if a.Spec.Source.PersistentVolumeName != nil {
				volume = *a.Spec.Source.PersistentVolumeName
			}
			return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, age(a.CreationTimestamp, now)}
		},
		ReturnDeleted: true,
		Subresources:  []*Subresource{life.status(k, nil, validateAttachment)},
	}.Kind(k)
}

func validateAttachment(new, old *storagev1.VolumeAttachment) field.ErrorList {
	path, status := field.NewPath("spec"), field.NewPath("status")
	errs := fieldcheck.DriverName(new.Spec.Attacher, path.Child("attacher"))
	errs = append(errs, validateAttachmentSource(&new.Spec.Source, path.Child("source"))...)
	errs = append(errs, validateSubdomain(new.Spec.NodeName, path.Child("nodeName"))...)
	if sizeOf(new.Status.AttachmentMetadata) > maxParametersSize {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxParametersSize))
	}
	errs = append(errs, validateVolumeError(new.Status.AttachError, status.Child("attachError"))...)
	errs = append(errs, validateVolumeError(new.Status.DetachError, status.Child("detachError"))...)
	if old != nil && !apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		errs = append(errs, field.Invalid(path, new.Spec, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

func validateAttachmentSource(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	name := path.Child("persistentVolumeName")
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, one)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, one)}
	case s.InlineVolumeSpec != nil:
		return validateInlineVolume(s.InlineVolumeSpec, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		return field.ErrorList{field.Required(name, "must specify non empty persistentVolumeName")}
	}
	return validateSubdomain(*s.PersistentVolumeName, name)
}

// maxVolumeError is the maximum length of an error message in bytes.
const maxVolumeError = 1024

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e == nil {
		return nil
	}
	if len(e.Message) > maxVolumeError {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxVolumeError))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *e.ErrorCode, validation.InclusiveRangeError(0, 1<<31-1)))
	}
	return errs
}
