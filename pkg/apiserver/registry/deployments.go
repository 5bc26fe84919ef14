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
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func deployments(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*appsv1.Deployment, appsv1.DeploymentSpec, appsv1.DeploymentStatus]{
		parts: func(d *appsv1.Deployment) (*appsv1.DeploymentSpec, *appsv1.DeploymentStatus) {
			return &d.Spec, &d.Status
		},
		// The deployment controller copies annotations to its ReplicaSets.
		revises: func(new, old *appsv1.Deployment) bool {
			return !apiequality.Semantic.DeepEqual(new.Annotations, old.Annotations)
		},
	}
	return Of[*appsv1.Deployment]{
		Default:                  defaultDeployment,
		Prepare:                  life.prepare,
		Validate:                 validatePrivileged(cfg, validateDeployment, func(d *appsv1.Deployment) (*corev1.PodSpec, *field.Path) { return templateSpec(&d.Spec.Template) }),
		Warnings:                 func(new, _ *appsv1.Deployment) []string { return templateWarnings(new.Name, &new.Spec.Template) },
		Columns:                  deploymentColumns(),
		Row:                      deploymentRow,
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{
			life.status(k, func(new, old *appsv1.Deployment) { new.Labels = old.Labels }, validateDeploymentStatus),
			scalable[*appsv1.Deployment]{
				replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
				running:  func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
				selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
			}.subresource(),
		},
	}.Kind(k)
}

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	newIfNil(&spec.Replicas, 1)
	orDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		newIfNil(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		newIfNil(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		newIfNil(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	newIfNil(&spec.RevisionHistoryLimit, 10)
	newIfNil(&spec.ProgressDeadlineSeconds, 600)
	podspec.Default(&spec.Template.Spec)
}

func validateDeployment(new, old *appsv1.Deployment) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	var before *corev1.PodTemplateSpec
	var errs field.ErrorList
	if old != nil {
		before = &old.Spec.Template
		errs = apivalidation.ValidateImmutableField(spec.Selector, old.Spec.Selector, path.Child("selector"))
	}
	if spec.Replicas != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*spec.Replicas), path.Child("replicas"))...)
	}
	errs = append(errs, validateSelector(spec.Selector, &spec.Template, "deployment", path)...)
	errs = append(errs, validateTemplate(&spec.Template, before, "ReplicaSet", path.Child("template"))...)
	errs = append(errs, validateStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	if n := spec.RevisionHistoryLimit; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), path.Child("revisionHistoryLimit"))...)
	}
	if n := spec.ProgressDeadlineSeconds; n != nil {
		at := path.Child("progressDeadlineSeconds")
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), at)...)
		if *n <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *n, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

func validateStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	at := path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(at, fmt.Sprintf("may not be specified when strategy `type` is '%v'", s.Type))}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(at, "this should be defaulted and never be nil")}
		}
		return validateRolling(s.RollingUpdate, at)
	}
	return field.ErrorList{field.NotSupported(path, s, []appsv1.DeploymentStrategyType{
		appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
}

func validateRolling(r *appsv1.RollingUpdateDeployment, path *field.Path) field.ErrorList {
	unavailable := path.Child("maxUnavailable")
	errs := validateShare(r.MaxUnavailable, unavailable)
	errs = append(errs, validateShare(r.MaxSurge, path.Child("maxSurge"))...)
	if share(r.MaxUnavailable) == 0 && share(r.MaxSurge) == 0 {
		errs = append(errs, field.Invalid(unavailable, r.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, atMostAll(r.MaxUnavailable, unavailable)...)
}

func validateDeploymentStatus(new, old *appsv1.Deployment) field.ErrorList {
	path := field.NewPath("status")
	s := &new.Status
	errs := apivalidation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))
	errs = append(errs, validateCounts(path, count{"replicas", s.Replicas},
		count{"updatedReplicas", s.UpdatedReplicas},
		count{"readyReplicas", s.ReadyReplicas},
		count{"availableReplicas", s.AvailableReplicas})...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(s.UnavailableReplicas), path.Child("unavailableReplicas"))...)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func deploymentColumns() []metav1.TableColumnDefinition {
	spec, status := appsv1.DeploymentSpec{}.SwaggerDoc(), appsv1.DeploymentStatus{}.SwaggerDoc()
	return append(columns(
		column("Ready", "Number of the pod with ready state"),
		number("Up-to-date", status["updatedReplicas"]),
		number("Available", status["availableReplicas"]),
		ageColumn(),
	), templateColumns(spec["selector"])...)
}

func deploymentRow(d *appsv1.Deployment, now time.Time) []any {
	return append([]any{
		d.Name,
		fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, desired(d.Spec.Replicas)),
		int64(d.Status.UpdatedReplicas),
		int64(d.Status.AvailableReplicas),
		age(d.CreationTimestamp, now),
	}, templateCells(&d.Spec.Template, d.Spec.Selector)...)
}
