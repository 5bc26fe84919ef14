package describe

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

func (p *page) autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	p.head(&h.ObjectMeta)
	p.labels(&h.ObjectMeta)
	p.line(0, "CreationTimestamp:\t%s", rfc1123(h.CreationTimestamp))
	p.line(0, "Reference:\t%s/%s", h.Spec.ScaleTargetRef.Kind, h.Spec.ScaleTargetRef.Name)
	p.line(0, "Metrics:\t( current / target )")
	for i := range h.Spec.Metrics {
		var current autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			current = h.Status.CurrentMetrics[i]
		}
		p.line(1, "%s", metric(&h.Spec.Metrics[i], &current))
	}
	p.line(0, "Min replicas:\t%s", optional(h.Spec.MinReplicas, ""))
	p.line(0, "Max replicas:\t%d", h.Spec.MaxReplicas)
	if b := h.Spec.Behavior; b != nil {
		p.line(0, "Behavior:")
		p.scaling("Scale Up", b.ScaleUp)
		p.scaling("Scale Down", b.ScaleDown)
	}
	p.line(0, "%s pods:\t%d current / %d desired", h.Spec.ScaleTargetRef.Kind, h.Status.CurrentReplicas, h.Status.DesiredReplicas)
	if len(h.Status.Conditions) > 0 {
		p.line(0, "Conditions:")
		p.line(1, "Type\tStatus\tReason\tMessage")
		p.line(1, "----\t------\t------\t-------")
		for _, c := range h.Status.Conditions {
			p.line(1, "%s\t%s\t%s\t%s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
}

// metric returns a metric with its present and its wanted value.
func metric(m *autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		var have *autoscalingv2.MetricValueStatus
		if now.External != nil {
			have = &now.External.Current
		}
		return fmt.Sprintf("%q %s", m.External.Metric.Name, value(&m.External.Target, have))
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		have := "<unknown>"
		if now.Pods != nil {
			have = quantity(now.Pods.Current.AverageValue)
		}
		return fmt.Sprintf("%q on pods:\t%s / %s", m.Pods.Metric.Name, have, quantity(m.Pods.Target.AverageValue))
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		var have *autoscalingv2.MetricValueStatus
		if now.Object != nil {
			have = &now.Object.Current
		}
		return fmt.Sprintf("%q on %s/%s %s", m.Object.Metric.Name, m.Object.DescribedObject.Kind, m.Object.DescribedObject.Name, value(&m.Object.Target, have))
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		var have *autoscalingv2.MetricValueStatus
		if now.Resource != nil {
			have = &now.Resource.Current
		}
		return fmt.Sprintf("resource %s on pods%s", m.Resource.Name, usage(&m.Resource.Target, have))
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		var have *autoscalingv2.MetricValueStatus
		if now.ContainerResource != nil {
			have = &now.ContainerResource.Current
		}
		return fmt.Sprintf("resource %s of container %q on pods%s", m.ContainerResource.Name, m.ContainerResource.Container, usage(&m.ContainerResource.Target, have))
	}
	return fmt.Sprintf("<unknown metric type %q>", m.Type)
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return "<unknown>"
	}
	return q.String()
}

// value returns the present and the wanted value of a metric; now may be nil.
func value(target *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if now == nil {
		now = &autoscalingv2.MetricValueStatus{}
	}
	if target.AverageValue != nil {
		return fmt.Sprintf("(target average value):\t%s / %s", quantity(now.AverageValue), target.AverageValue)
	}
	return fmt.Sprintf("(target value):\t%s / %s", quantity(now.Value), quantity(target.Value))
}

// usage returns the present and the wanted use of a resource; now may be nil.
func usage(target *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if now == nil {
		now = &autoscalingv2.MetricValueStatus{}
	}
	if target.AverageValue != nil {
		return fmt.Sprintf(":\t%s / %s", quantity(now.AverageValue), target.AverageValue)
	}
	have, want := "<unknown>", "<auto>"
	if now.AverageUtilization != nil {
		have = fmt.Sprintf("%d%% (%s)", *now.AverageUtilization, quantity(now.AverageValue))
	}
	if target.AverageUtilization != nil {
		want = fmt.Sprintf("%d%%", *target.AverageUtilization)
	}
	return fmt.Sprintf("  (as a percentage of request):\t%s / %s", have, want)
}

func (p *page) scaling(direction string, r *autoscalingv2.HPAScalingRules) {
	if r == nil {
		return
	}
	p.line(1, "%s:", direction)
	if r.StabilizationWindowSeconds != nil {
		p.line(2, "Stabilization Window: %d seconds", *r.StabilizationWindowSeconds)
	}
	if len(r.Policies) == 0 {
		return
	}
	choice := autoscalingv2.MaxChangePolicySelect
	if r.SelectPolicy != nil {
		choice = *r.SelectPolicy
	}
	p.line(2, "Select Policy: %s", choice)
	p.line(2, "Policies:")
	for _, policy := range r.Policies {
		p.line(3, "- Type: %s\tValue: %d\tPeriod: %d seconds", policy.Type, policy.Value, policy.PeriodSeconds)
	}
}
