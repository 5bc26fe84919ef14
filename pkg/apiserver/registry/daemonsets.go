package registry

import (
	"context"
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func daemonSets(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*appsv1.DaemonSet, appsv1.DaemonSetSpec, appsv1.DaemonSetStatus]{
		parts: func(d *appsv1.DaemonSet) (*appsv1.DaemonSetSpec, *appsv1.DaemonSetStatus) {
			return &d.Spec, &d.Status
		},
	}
	return Of[*appsv1.DaemonSet]{
		Default: defaultDaemonSet,
		Prepare: func(ctx context.Context, b Backend, new, old *appsv1.DaemonSet) error {
			countTemplates(new, old)
			return life.prepare(ctx, b, new, old)
		},
		Validate: validatePrivileged(cfg, validateDaemonSet, func(d *appsv1.DaemonSet) (*corev1.PodSpec, *field.Path) { return templateSpec(&d.Spec.Template) }),
		Warnings: func(new, _ *appsv1.DaemonSet) []string {
			return podspec.TemplateWarnings(&new.Spec.Template, field.NewPath("spec", "template"))
		},
		Columns:                  daemonSetColumns(),
		Row:                      daemonSetRow,
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{
			life.status(k, func(new, old *appsv1.DaemonSet) { setTemplateGeneration(new, templateGeneration(old)) }, validateDaemonSetStatus),
		},
	}.Kind(k)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec.UpdateStrategy
	orDefault(&s.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		newIfNil(&s.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		newIfNil(&s.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		newIfNil(&s.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	newIfNil(&d.Spec.RevisionHistoryLimit, 10)
	podspec.Default(&d.Spec.Template.Spec)
}

// countTemplates sets the annotation with the number of templates that the daemon set
// has had. Users cannot change it.
func countTemplates(new, old *appsv1.DaemonSet) {
	switch {
	case old == nil:
		setTemplateGeneration(new, max(1, templateGeneration(new)))
	case apiequality.Semantic.DeepEqual(new.Spec.Template, old.Spec.Template):
		setTemplateGeneration(new, templateGeneration(old))
	default:
		setTemplateGeneration(new, templateGeneration(old)+1)
	}
}

// templateGeneration returns the value of the annotation, 0 if it is not a number.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	d.Annotations = maps.Clone(d.Annotations)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(n, 10))
}

func validateDaemonSet(new, old *appsv1.DaemonSet) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	var before *corev1.PodTemplateSpec
	var errs field.ErrorList
	if old != nil {
		before = &old.Spec.Template
		errs = apivalidation.ValidateImmutableField(spec.Selector, old.Spec.Selector, path.Child("selector"))
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !s.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	if s := spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path.Child("selector"), s, "empty selector is invalid for daemonset"))
	}
	errs = append(errs, validateTemplate(&spec.Template, before, "DaemonSet", path.Child("template"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateDaemonSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))...)
	if n := spec.RevisionHistoryLimit; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), path.Child("revisionHistoryLimit"))...)
	}
	return errs
}

func validateDaemonSetStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	r, at := s.RollingUpdate, path.Child("rollingUpdate")
	if r == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	unavailable, surge := at.Child("maxUnavailable"), at.Child("maxSurge")
	errs := validateShare(r.MaxUnavailable, unavailable)
	errs = append(errs, validateShare(r.MaxSurge, surge)...)
	errs = append(errs, atMostAll(r.MaxUnavailable, unavailable)...)
	errs = append(errs, atMostAll(r.MaxSurge, surge)...)
	switch {
	case share(r.MaxUnavailable) != 0 && share(r.MaxSurge) != 0:
		errs = append(errs, field.Invalid(surge, r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case share(r.MaxUnavailable) == 0 && share(r.MaxSurge) == 0:
		errs = append(errs, field.Required(unavailable, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(new, old *appsv1.DaemonSet) field.ErrorList {
	path := field.NewPath("status")
	s := &new.Status
	errs := validateNonnegative(path,
		count{"currentNumberScheduled", s.CurrentNumberScheduled},
		count{"numberMisscheduled", s.NumberMisscheduled},
		count{"desiredNumberScheduled", s.DesiredNumberScheduled},
		count{"numberReady", s.NumberReady},
		count{"updatedNumberScheduled", s.UpdatedNumberScheduled},
		count{"numberAvailable", s.NumberAvailable},
		count{"numberUnavailable", s.NumberUnavailable})
	errs = append(errs, apivalidation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))...)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func daemonSetColumns() []metav1.TableColumnDefinition {
	spec, status := appsv1.DaemonSetSpec{}.SwaggerDoc(), appsv1.DaemonSetStatus{}.SwaggerDoc()
	return append(columns(
		number("Desired", status["desiredNumberScheduled"]),
		number("Current", status["currentNumberScheduled"]),
		number("Ready", status["numberReady"]),
		number("Up-to-date", status["updatedNumberScheduled"]),
		number("Available", status["numberAvailable"]),
		column("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]),
		ageColumn(),
	), templateColumns(spec["selector"])...)
}

func daemonSetRow(d *appsv1.DaemonSet, now time.Time) []any {
	s := &d.Status
	return append([]any{
		d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady), int64(s.UpdatedNumberScheduled),
		int64(s.NumberAvailable), formatLabels(d.Spec.Template.Spec.NodeSelector), age(d.CreationTimestamp, now),
	}, templateCells(&d.Spec.Template, d.Spec.Selector)...)
}
