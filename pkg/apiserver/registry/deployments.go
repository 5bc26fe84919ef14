package registry

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry/podspec"
	"podium/pkg/scheme"
)

func deployments(k *scheme.Kind, cfg Config) *Kind {
	return Of[*appsv1.Deployment]{
		Default:                  defaultDeployment,
		Prepare:                  prepareDeployment,
		Validate:                 validatePrivileged(cfg, validateDeployment, func(d *appsv1.Deployment) (*corev1.PodSpec, *field.Path) { return templateSpec(&d.Spec.Template) }),
		Warnings:                 func(new, _ *appsv1.Deployment) []string { return templateWarnings(new.Name, &new.Spec.Template) },
		Columns:                  deploymentColumns(),
		Row:                      deploymentRow,
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{
			part(k, "status", func(new, old *appsv1.Deployment) {
				new.Spec = old.Spec
				new.Labels = old.Labels
				new.Generation = old.Generation
			}, validateDeploymentStatus),
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
	if spec.Replicas == nil {
		spec.Replicas = new(int32(1))
	}
	orDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if spec.Strategy.RollingUpdate == nil {
			spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		r := spec.Strategy.RollingUpdate
		if r.MaxUnavailable == nil {
			r.MaxUnavailable = new(intstr.FromString("25%"))
		}
		if r.MaxSurge == nil {
			r.MaxSurge = new(intstr.FromString("25%"))
		}
	}
	if spec.RevisionHistoryLimit == nil {
		spec.RevisionHistoryLimit = new(int32(10))
	}
	if spec.ProgressDeadlineSeconds == nil {
		spec.ProgressDeadlineSeconds = new(int32(600))
	}
	podspec.Default(&spec.Template.Spec)
}

// prepareDeployment counts changed annotations too: the controller copies
// them to its ReplicaSets.
func prepareDeployment(_ context.Context, _ Backend, new, old *appsv1.Deployment) error {
	if old == nil {
		new.Status = appsv1.DeploymentStatus{}
		new.Generation = 1
		return nil
	}
	new.Status = old.Status
	same := apiequality.Semantic.DeepEqual(new.Spec, old.Spec) && apiequality.Semantic.DeepEqual(new.Annotations, old.Annotations)
	new.Generation = nextGeneration(&old.ObjectMeta, same)
	return nil
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
	errs = append(errs, validateTemplate(&spec.Template, before, path.Child("template"))...)
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
	if r.MaxUnavailable != nil && r.MaxUnavailable.Type == intstr.String && share(r.MaxUnavailable) > 100 {
		errs = append(errs, field.Invalid(unavailable, r.MaxUnavailable, "must not be greater than 100%"))
	}
	return errs
}

// validateShare checks a number or a percentage of pods.
func validateShare(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.String {
		return messages(validation.IsValidPercent(v.StrVal), path, v)
	}
	return apivalidation.ValidateNonnegativeField(int64(v.IntVal), path)
}

// share is the number in v, be it of pods or of hundredths.
func share(v *intstr.IntOrString) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
	if err != nil {
		return 0
	}
	return n
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
	if n := s.CollisionCount; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), path.Child("collisionCount"))...)
	}
	if was := old.Status.CollisionCount; was != nil && (s.CollisionCount == nil || *s.CollisionCount < *was) {
		errs = append(errs, field.Invalid(path.Child("collisionCount"), s.CollisionCount, "cannot be decremented"))
	}
	return errs
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
