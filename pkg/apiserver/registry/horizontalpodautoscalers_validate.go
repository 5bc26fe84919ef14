package registry

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
)

// Limits of scaling rules, in seconds.
const (
	maxScalingPeriod       = 1800
	maxStabilizationWindow = 3600
)

func validateAutoscaler(new, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	var errs field.ErrorList
	if n := spec.MinReplicas; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *n, "must be greater than or equal to 1"))
	}
	if spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than 0"))
	}
	if n := spec.MinReplicas; n != nil && spec.MaxReplicas < *n {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateReference(nil, spec.ScaleTargetRef.Kind, spec.ScaleTargetRef.Name, path.Child("scaleTargetRef"))...)
	for i := range spec.Metrics {
		errs = append(errs, validateMetric(&spec.Metrics[i], path.Child("metrics").Index(i))...)
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validateScaling(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScaling(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateAutoscalerStatus(new, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return validateNonnegative(field.NewPath("status"),
		count{"currentReplicas", new.Status.CurrentReplicas}, count{"desiredReplicas", new.Status.DesiredReplicas})
}

func validateScaling(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	window, policies := path.Child("stabilizationWindowSeconds"), path.Child("policies")
	if s := r.StabilizationWindowSeconds; s != nil && *s < 0 {
		errs = append(errs, field.Invalid(window, *s, "must be greater than or equal to zero"))
	} else if s != nil && *s > maxStabilizationWindow {
		errs = append(errs, field.Invalid(window, *s, fmt.Sprintf("must be less than or equal to %v", maxStabilizationWindow)))
	}
	if p := r.SelectPolicy; p != nil {
		errs = append(errs, fieldcheck.Supported(*p, path.Child("selectPolicy"),
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(policies, "must specify at least one Policy"))
	}
	for i := range r.Policies {
		errs = append(errs, validateScalingPolicy(&r.Policies[i], policies.Index(i))...)
	}
	if t := r.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), t.String(), apivalidation.IsNegativeErrorMsg))
	}
	return errs
}

func validateScalingPolicy(p *autoscalingv2.HPAScalingPolicy, path *field.Path) field.ErrorList {
	errs := fieldcheck.Supported(p.Type, path.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
	if p.Value <= 0 {
		errs = append(errs, field.Invalid(path.Child("value"), p.Value, "must be greater than zero"))
	}
	switch at := path.Child("periodSeconds"); {
	case p.PeriodSeconds <= 0:
		errs = append(errs, field.Invalid(at, p.PeriodSeconds, "must be greater than zero"))
	case p.PeriodSeconds > maxScalingPeriod:
		errs = append(errs, field.Invalid(at, p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %v", maxScalingPeriod)))
	}
	return errs
}

// metricSource is one of the sources that a metric may have.
type metricSource struct {
	kind     autoscalingv2.MetricSourceType
	name     string
	set      bool
	validate func(path *field.Path) field.ErrorList
}

func metricSources(m *autoscalingv2.MetricSpec) []metricSource {
	return []metricSource{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(path *field.Path) field.ErrorList { return validateObjectMetric(m.Object, path) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(path *field.Path) field.ErrorList { return validateExternalMetric(m.External, path) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(path *field.Path) field.ErrorList { return validatePodsMetric(m.Pods, path) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(path *field.Path) field.ErrorList {
			return append(validateMetricResource(string(m.Resource.Name), path), validateUtilization(&m.Resource.Target, path.Child("target"))...)
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(path *field.Path) field.ErrorList {
			return validateContainerMetric(m.ContainerResource, path)
		}},
	}
}

// validateMetric checks that a metric has the source of its type, and no other.
func validateMetric(m *autoscalingv2.MetricSpec, path *field.Path) field.ErrorList {
	var errs, extra field.ErrorList
	known, validated := false, false
	for _, s := range metricSources(m) {
		known = known || s.kind == m.Type
		if s.set && !validated {
			errs = append(errs, s.validate(path.Child(s.name))...)
			validated = true
		}
		switch {
		case !s.set && s.kind == m.Type:
			errs = append(errs, field.Required(path.Child(s.name), "must populate information for the given metric source"))
		case s.set && s.kind != m.Type:
			extra = append(extra, field.Forbidden(path.Child(s.name), "must populate the given metric source only"))
		}
	}
	at := path.Child("type")
	if m.Type == "" {
		errs = append(errs, field.Required(at, "must specify a metric source type"))
	}
	if !known {
		errs = append(errs, field.NotSupported(at, m.Type, []autoscalingv2.MetricSourceType{
			autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
			autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType}))
	}
	return append(errs, extra...)
}

func validateObjectMetric(m *autoscalingv2.ObjectMetricSource, path *field.Path) field.ErrorList {
	errs := validateReference(nil, m.DescribedObject.Kind, m.DescribedObject.Name, path.Child("describedObject"))
	errs = append(errs, validateMetricName(m.Metric.Name, path)...)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternalMetric(m *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	target := path.Child("target")
	errs := validateMetricName(m.Metric.Name, path)
	errs = append(errs, validateTarget(&m.Target, target)...)
	switch value, average := m.Target.Value != nil, m.Target.AverageValue != nil; {
	case !value && !average:
		errs = append(errs, field.Required(target.Child("averageValue"), "must set either a target value for metric or a per-pod target"))
	case value && average:
		errs = append(errs, field.Forbidden(target.Child("value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePodsMetric(m *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := validateMetricName(m.Metric.Name, path)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	if m.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateContainerMetric(m *autoscalingv2.ContainerResourceMetricSource, path *field.Path) field.ErrorList {
	errs := validateMetricResource(string(m.Name), path)
	if m.Name != "" {
		errs = podspec.ValidateResourceName(m.Name, path.Child("name"))
	}
	if at := path.Child("container"); m.Container == "" {
		errs = append(errs, field.Required(at, "must specify a container"))
	} else {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(m.Container), at, m.Container)...)
	}
	return append(errs, validateUtilization(&m.Target, path.Child("target"))...)
}

func validateMetricResource(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "must specify a resource name")}
	}
	return nil
}

func validateMetricName(name string, path *field.Path) field.ErrorList {
	path = path.Child("metric", "name")
	if name == "" {
		return field.ErrorList{field.Required(path, "must specify a metric name")}
	}
	return validateSegment(name, path)
}

// validateUtilization validates the target of a resource: a value or a share of what
// is requested.
func validateUtilization(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := validateTarget(t, path)
	switch share, value := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !share && !value:
		errs = append(errs, field.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case share && value:
		errs = append(errs, field.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	}
	if t.Type != autoscalingv2.UtilizationMetricType && t.Type != autoscalingv2.ValueMetricType && t.Type != autoscalingv2.AverageValueMetricType {
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if n := t.AverageUtilization; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *n, "must be greater than 0"))
	}
	return errs
}
