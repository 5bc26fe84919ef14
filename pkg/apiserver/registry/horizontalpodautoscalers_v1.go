package registry

import (
	"encoding/json"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations that hold, in autoscaling/v1, what has no field there.
const (
	metricSpecsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	metricStatusesAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
)

// withoutV1 returns a copy of annotations without those of autoscaling/v1.
func withoutV1(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, name := range []string{metricSpecsAnnotation, behaviorAnnotation, metricStatusesAnnotation, conditionsAnnotation} {
		delete(out, name)
	}
	return out
}

// autoscalerToV1 converts an autoscaler to autoscaling/v1, which knows one metric: the
// utilization of the CPU.
func autoscalerToV1(a *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	s := &a.Status
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: a.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef), MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: s.ObservedGeneration, LastScaleTime: s.LastScaleTime, CurrentReplicas: s.CurrentReplicas, DesiredReplicas: s.DesiredReplicas,
		},
	}
	out.Annotations = withoutV1(a.Annotations)
	var others []autoscalingv1.MetricSpec
	for i := range a.Spec.Metrics {
		if m := &a.Spec.Metrics[i]; !isCPUUtilization(m) {
			others = append(others, metricToV1(m))
		} else if out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	var statuses []autoscalingv1.MetricStatus
	for i := range s.CurrentMetrics {
		m := &s.CurrentMetrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		statuses = append(statuses, metricStatusToV1(m)) // the value itself is only here
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range s.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	annotate(&out.ObjectMeta, metricSpecsAnnotation, len(others) > 0, others)
	annotate(&out.ObjectMeta, metricStatusesAnnotation, len(statuses) > 0, statuses)
	annotate(&out.ObjectMeta, conditionsAnnotation, len(conditions) > 0, conditions)
	annotate(&out.ObjectMeta, behaviorAnnotation, a.Spec.Behavior != nil, behaviorToV1(a.Spec.Behavior))
	return out
}

func isCPUUtilization(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

// annotate adds value as JSON if it is set.
func annotate(meta *metav1.ObjectMeta, name string, set bool, value any) {
	if text, err := json.Marshal(value); set && err == nil {
		metav1.SetMetaDataAnnotation(meta, name, string(text))
	}
}

// autoscalerFromV1 is the inverse of autoscalerToV1. As upstream, it ignores
// annotations that it cannot read.
func autoscalerFromV1(a *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	s := &a.Status
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: a.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(a.Spec.ScaleTargetRef), MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
			Behavior: fromAnnotation[*autoscalingv2.HorizontalPodAutoscalerBehavior](a, behaviorAnnotation),
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: s.ObservedGeneration, LastScaleTime: s.LastScaleTime, CurrentReplicas: s.CurrentReplicas, DesiredReplicas: s.DesiredReplicas,
		},
	}
	out.Annotations = withoutV1(a.Annotations)
	for _, m := range fromAnnotation[[]autoscalingv1.MetricSpec](a, metricSpecsAnnotation) {
		out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&m))
	}
	if target := a.Spec.TargetCPUUtilizationPercentage; target != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuUtilization(*target))
	}
	for _, m := range fromAnnotation[[]autoscalingv1.MetricStatus](a, metricStatusesAnnotation) {
		out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusFromV1(&m))
	}
	if now := s.CurrentCPUUtilizationPercentage; now != nil && len(out.Status.CurrentMetrics) == 0 {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: now},
		}}}
	}
	for _, c := range fromAnnotation[[]autoscalingv1.HorizontalPodAutoscalerCondition](a, conditionsAnnotation) {
		out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

// fromAnnotation returns the value of an annotation, the zero T if it has none.
func fromAnnotation[T any](a *autoscalingv1.HorizontalPodAutoscaler, name string) T {
	var out, none T
	if json.Unmarshal([]byte(a.Annotations[name]), &out) != nil {
		return none
	}
	return out
}

// behaviorV1, rulesV1 and policyV1 have the field names of the annotation, which are
// those of Go.
type (
	behaviorV1 struct{ ScaleUp, ScaleDown *rulesV1 }
	rulesV1    struct {
		StabilizationWindowSeconds *int32
		SelectPolicy               *autoscalingv2.ScalingPolicySelect
		Policies                   []policyV1
		Tolerance                  *resource.Quantity
	}
	policyV1 struct {
		Type          autoscalingv2.HPAScalingPolicyType
		Value         int32
		PeriodSeconds int32
	}
)

func behaviorToV1(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *behaviorV1 {
	if b == nil {
		return nil
	}
	return &behaviorV1{ScaleUp: rulesToV1(b.ScaleUp), ScaleDown: rulesToV1(b.ScaleDown)}
}

func rulesToV1(r *autoscalingv2.HPAScalingRules) *rulesV1 {
	if r == nil {
		return nil
	}
	out := &rulesV1{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, policyV1(p))
	}
	return out
}
