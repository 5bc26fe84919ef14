package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

func horizontalPodAutoscalers(k *scheme.Kind, _ Config) *Kind {
	return Of[*autoscalingv2.HorizontalPodAutoscaler]{
		Versions: []*Version{converted(
			scheme.As[autoscalingv1.HorizontalPodAutoscaler, autoscalingv1.HorizontalPodAutoscalerList](k, autoscalingv1.SchemeGroupVersion),
			autoscalerToV1, autoscalerFromV1, nil)},
		Default: defaultAutoscaler,
		Prepare: func(_ context.Context, _ Backend, new, old *autoscalingv2.HorizontalPodAutoscaler) error {
			new.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
			if old != nil {
				new.Status = old.Status
			}
			return nil
		},
		Validate:                 validateAutoscaler,
		Columns:                  autoscalerColumns(),
		Row:                      autoscalerRow,
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{part(k, "status",
			func(new, old *autoscalingv2.HorizontalPodAutoscaler) { new.Spec = old.Spec }, validateAutoscalerStatus)},
	}.Kind(k)
}

// defaultUtilization is the target in percent of the requested CPU.
const defaultUtilization = 80

func defaultAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	newIfNil(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultUtilization)}
	}
	if b := a.Spec.Behavior; b != nil {
		const period = 15 // seconds
		double := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: period}
		four := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: period}
		newIfNil(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
		newIfNil(&b.ScaleUp.StabilizationWindowSeconds, 0)
		defaultScaling(b.ScaleUp, four, double)
		newIfNil(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
		defaultScaling(b.ScaleDown, double)
	}
}

func defaultScaling(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	newIfNil(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}

func cpuUtilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

func autoscalerColumns() []metav1.TableColumnDefinition {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return columns(
		column("Reference", spec["scaleTargetRef"]),
		column("Targets", spec["metrics"]),
		column("MinPods", spec["minReplicas"]),
		column("MaxPods", spec["maxReplicas"]),
		column("Replicas", status["currentReplicas"]),
		ageColumn(),
	)
}

func autoscalerRow(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	least := "<unset>"
	if n := a.Spec.MinReplicas; n != nil {
		least = fmt.Sprint(*n)
	}
	return []any{
		a.Name, a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name, metricCells(a.Spec.Metrics, a.Status.CurrentMetrics),
		least, int64(a.Spec.MaxReplicas), int64(a.Status.CurrentReplicas), age(a.CreationTimestamp, now),
	}
}

// metricCells describes the first two metrics as current value and target.
func metricCells(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	const most = 2
	var out []string
	for i := range specs[:min(most, len(specs))] {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		out = append(out, metricCell(&specs[i], &status))
	}
	text := orNone(strings.Join(out, ", "))
	if len(specs) > most {
		text += fmt.Sprintf(" + %d more...", len(specs)-most)
	}
	return text
}

func metricCell(m *autoscalingv2.MetricSpec, s *autoscalingv2.MetricStatus) string {
	s = filled(s)
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		return amounts(&m.External.Target, &s.External.Current)
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		return amounts(&m.Object.Target, &s.Object.Current)
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		return quantity(s.Pods.Current.AverageValue) + "/" + quantity(m.Pods.Target.AverageValue)
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		return string(m.Resource.Name) + ": " + utilization(&m.Resource.Target, &s.Resource.Current)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		return string(m.ContainerResource.Name) + ": " + utilization(&m.ContainerResource.Target, &s.ContainerResource.Current)
	}
	return "<unknown type>"
}

// filled returns a copy of s without nil pointers to statuses.
func filled(s *autoscalingv2.MetricStatus) *autoscalingv2.MetricStatus {
	return &autoscalingv2.MetricStatus{
		Object: cmp.Or(s.Object, &autoscalingv2.ObjectMetricStatus{}), Pods: cmp.Or(s.Pods, &autoscalingv2.PodsMetricStatus{}),
		Resource: cmp.Or(s.Resource, &autoscalingv2.ResourceMetricStatus{}), External: cmp.Or(s.External, &autoscalingv2.ExternalMetricStatus{}),
		ContainerResource: cmp.Or(s.ContainerResource, &autoscalingv2.ContainerResourceMetricStatus{}),
	}
}

func amounts(t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if t.AverageValue != nil {
		return quantity(now.AverageValue) + "/" + quantity(t.AverageValue) + " (avg)"
	}
	return quantity(now.Value) + "/" + quantity(t.Value)
}

func utilization(t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if t.AverageValue != nil {
		return quantity(now.AverageValue) + "/" + quantity(t.AverageValue)
	}
	return percent(now.AverageUtilization, "<unknown>") + "/" + percent(t.AverageUtilization, "<auto>")
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return "<unknown>"
	}
	return q.String()
}

func percent(n *int32, none string) string {
	if n == nil {
		return none
	}
	return fmt.Sprintf("%d%%", *n)
}
