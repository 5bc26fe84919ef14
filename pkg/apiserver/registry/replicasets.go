package registry

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func replicaSets(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*appsv1.ReplicaSet, appsv1.ReplicaSetSpec, appsv1.ReplicaSetStatus]{
		parts: func(rs *appsv1.ReplicaSet) (*appsv1.ReplicaSetSpec, *appsv1.ReplicaSetStatus) {
			return &rs.Spec, &rs.Status
		},
	}
	return Of[*appsv1.ReplicaSet]{
		Default:  defaultReplicaSet,
		Prepare:  life.prepare,
		Validate: validatePrivileged(cfg, validateReplicaSet, func(rs *appsv1.ReplicaSet) (*corev1.PodSpec, *field.Path) { return templateSpec(&rs.Spec.Template) }),
		Warnings: func(new, _ *appsv1.ReplicaSet) []string { return templateWarnings(new.Name, &new.Spec.Template) },
		Columns:  replicaSetColumns(),
		Row:      replicaSetRow,
		Fields: func(rs *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(rs.Status.Replicas))}
		},
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{
			life.status(k, nil, validateReplicaSetStatus),
			scalable[*appsv1.ReplicaSet]{
				replicas: func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
				running:  func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas },
				selector: func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
			}.subresource(),
		},
	}.Kind(k)
}

func defaultReplicaSet(rs *appsv1.ReplicaSet) {
	newIfNil(&rs.Spec.Replicas, 1)
	podspec.Default(&rs.Spec.Template.Spec)
}

func validateReplicaSet(new, old *appsv1.ReplicaSet) field.ErrorList {
	path := field.NewPath("spec")
	var before *corev1.PodTemplateSpec
	var errs field.ErrorList
	if old != nil {
		before = &old.Spec.Template
		errs = apivalidation.ValidateImmutableField(new.Spec.Selector, old.Spec.Selector, path.Child("selector"))
	}
	if new.Spec.Replicas != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*new.Spec.Replicas), path.Child("replicas"))...)
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(new.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateSelector(new.Spec.Selector, &new.Spec.Template, "deployment", path)...)
	return append(errs, validateTemplate(&new.Spec.Template, before, "ReplicaSet", path.Child("template"))...)
}

func validateReplicaSetStatus(new, _ *appsv1.ReplicaSet) field.ErrorList {
	s := &new.Status
	return validateReplicaCounts(s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, s.ObservedGeneration)
}

// validateReplicaCounts validates the status of a ReplicaSet or a
// ReplicationController.
func validateReplicaCounts(all, labelled, ready, available int32, observed int64) field.ErrorList {
	path := field.NewPath("status")
	errs := validateCounts(path, count{"replicas", all},
		count{"fullyLabeledReplicas", labelled},
		count{"readyReplicas", ready},
		count{"availableReplicas", available})
	if available > ready {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), available, "cannot be greater than readyReplicas"))
	}
	return append(errs, apivalidation.ValidateNonnegativeField(observed, path.Child("observedGeneration"))...)
}

func replicaSetColumns() []metav1.TableColumnDefinition {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return append(columns(
		number("Desired", spec["replicas"]),
		number("Current", status["replicas"]),
		number("Ready", status["readyReplicas"]),
		ageColumn(),
	), templateColumns(spec["selector"])...)
}

func replicaSetRow(rs *appsv1.ReplicaSet, now time.Time) []any {
	return append([]any{rs.Name, desired(rs.Spec.Replicas), int64(rs.Status.Replicas), int64(rs.Status.ReadyReplicas), age(rs.CreationTimestamp, now)},
		templateCells(&rs.Spec.Template, rs.Spec.Selector)...)
}

func desired(replicas *int32) int64 {
	if replicas == nil {
		return 1
	}
	return int64(*replicas)
}
