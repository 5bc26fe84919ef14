package registry

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func statefulSets(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*appsv1.StatefulSet, appsv1.StatefulSetSpec, appsv1.StatefulSetStatus]{
		parts: func(s *appsv1.StatefulSet) (*appsv1.StatefulSetSpec, *appsv1.StatefulSetStatus) {
			return &s.Spec, &s.Status
		},
	}
	return Of[*appsv1.StatefulSet]{
		Default:                  defaultStatefulSet,
		Prepare:                  life.prepare,
		Validate:                 validatePrivileged(cfg, validateStatefulSet, func(s *appsv1.StatefulSet) (*corev1.PodSpec, *field.Path) { return templateSpec(&s.Spec.Template) }),
		ValidateName:             apivalidation.NameIsDNSLabel, // pods are named after the set, and their host names after them
		Warnings:                 statefulSetWarnings,
		Columns:                  statefulSetColumns(),
		Row:                      statefulSetRow,
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{
			life.status(k, nil, validateStatefulSetStatus),
			scalable[*appsv1.StatefulSet]{
				replicas: func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
				running:  func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
				selector: func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector },
			}.subresource(),
		},
	}.Kind(k)
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	orDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		newIfNil(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if r := spec.UpdateStrategy.RollingUpdate; r != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		newIfNil(&r.Partition, 0)
		newIfNil(&r.MaxUnavailable, intstr.FromInt32(1))
	}
	newIfNil(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	orDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	newIfNil(&spec.Replicas, 1)
	newIfNil(&spec.RevisionHistoryLimit, 10)
	podspec.Default(&spec.Template.Spec)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		orDefault(&claim.Status.Phase, corev1.ClaimPending)
		newIfNil(&claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
}

func validateStatefulSet(new, old *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	errs := validateStatefulSetPolicies(spec, path)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	if spec.Replicas != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*spec.Replicas), path.Child("replicas"))...)
	}
	if spec.Ordinals != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(spec.Ordinals.Start), path.Child("ordinals.start"))...)
	}
	if spec.ServiceName != "" && (old == nil || old.Spec.ServiceName != spec.ServiceName) {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(spec.ServiceName), path.Child("serviceName"), spec.ServiceName)...)
	}
	errs = append(errs, validateSelector(spec.Selector, &spec.Template, "statefulset", path)...)
	errs = append(errs, validateClaimNames(spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = withClaims(&old.Spec)
		errs = append(errs, validateStatefulSetUpdate(spec, &old.Spec, path)...)
	}
	return append(errs, validateTemplate(withClaims(spec), before, "StatefulSet", path.Child("template"))...)
}

// withClaims returns the pod template with a volume for each claim template, as its
// pods have it. A claim replaces the volume of the same name.
func withClaims(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	t := spec.Template
	have := sets.New[string]()
	for _, v := range t.Spec.Volumes {
		have.Insert(v.Name)
	}
	t.Spec.Volumes = t.Spec.Volumes[:len(t.Spec.Volumes):len(t.Spec.Volumes)]
	for _, claim := range spec.VolumeClaimTemplates {
		if len(validation.IsDNS1123Label(claim.Name)) == 0 && !have.Has(claim.Name) {
			have.Insert(claim.Name)
			t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
	}
	return &t
}

// validateClaimNames checks the names, which are also those of the pods' volumes.
func validateClaimNames(claims []corev1.PersistentVolumeClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range claims {
		at, name := path.Index(i).Child("metadata", "name"), claims[i].Name
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(name), at, name)...)
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen.Insert(name)
	}
	return errs
}

func validateStatefulSetUpdate(spec, old *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	rest := *spec
	rest.Replicas, rest.Ordinals, rest.Template = old.Replicas, old.Ordinals, old.Template
	rest.UpdateStrategy, rest.MinReadySeconds = old.UpdateStrategy, old.MinReadySeconds
	rest.RevisionHistoryLimit = old.RevisionHistoryLimit
	rest.PersistentVolumeClaimRetentionPolicy = old.PersistentVolumeClaimRetentionPolicy
	if apiequality.Semantic.DeepEqual(&rest, old) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "+
		"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}

func validateStatefulSetPolicies(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	errs := validateStatefulSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))
	switch p := spec.PodManagementPolicy; p {
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), p,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)))
	}
	if retention := spec.PersistentVolumeClaimRetentionPolicy; retention != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, validateRetention(retention.WhenDeleted, at.Child("whenDeleted"))...)
		errs = append(errs, validateRetention(retention.WhenScaled, at.Child("whenScaled"))...)
	}
	return errs
}

func validateRetention(p appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) field.ErrorList {
	return fieldcheck.Supported(p, path, appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
}

func validateStatefulSetStrategy(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch s.Type {
	case "":
		return field.ErrorList{field.Required(path, "")}
	case appsv1.OnDeleteStatefulSetStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Invalid(rolling, s.RollingUpdate,
				fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType))}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType:
		return validateStatefulSetRolling(s.RollingUpdate, rolling)
	}
	return field.ErrorList{field.Invalid(path, s, fmt.Sprintf("must be '%s' or '%s'",
		appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType))}
}

func validateStatefulSetRolling(r *appsv1.RollingUpdateStatefulSetStrategy, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if r.Partition != nil {
		errs = apivalidation.ValidateNonnegativeField(int64(*r.Partition), path.Child("partition"))
	}
	at := path.Child("maxUnavailable")
	errs = append(errs, validateShare(r.MaxUnavailable, at)...)
	if r.MaxUnavailable != nil && share(r.MaxUnavailable) == 0 {
		errs = append(errs, field.Invalid(at, r.MaxUnavailable, "cannot be 0"))
	}
	return append(errs, atMostAll(r.MaxUnavailable, at)...)
}

func validateStatefulSetStatus(new, old *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("status")
	s := &new.Status
	errs := validateCounts(path, count{"replicas", s.Replicas},
		count{"readyReplicas", s.ReadyReplicas},
		count{"currentReplicas", s.CurrentReplicas},
		count{"updatedReplicas", s.UpdatedReplicas},
		count{"availableReplicas", s.AvailableReplicas})
	errs = append(errs, apivalidation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))...)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than status.readyReplicas"))
	}
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func statefulSetWarnings(new, _ *appsv1.StatefulSet) []string {
	out := podspec.TemplateWarnings(&new.Spec.Template, field.NewPath("spec", "template"))
	if n := new.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}

func statefulSetColumns() []metav1.TableColumnDefinition {
	return append(columns(
		column("Ready", "Number of the pod with ready state"),
		ageColumn(),
	), templateColumns("")[:2]...)
}

func statefulSetRow(s *appsv1.StatefulSet, now time.Time) []any {
	return append([]any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, desired(s.Spec.Replicas)), age(s.CreationTimestamp, now)},
		templateCells(&s.Spec.Template, nil)[:2]...)
}
