package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// reading is what the API said about one metric of a spec: samples of pods (Resource,
// ContainerResource, Pods), a value in thousandths (Object, External), or an error.
type reading struct {
	samples map[string]sample
	value   int64
	err     error
	took    time.Duration
}

// proposal is the number of replicas that one metric asks for, or why it asks for none.
type proposal struct {
	replicas int32
	name     string // of the metric, for the reason of a change
	status   autoscalingv2.MetricStatus

	err    error  // in the condition and the event
	reason string // of both
	what   string // which metric failed, for the error about all metrics
}

// defect is an error that only another spec can repair.
type defect struct{ error }

// propose returns what a metric asks for.
func (v *view) propose(m *autoscalingv2.MetricSpec, r reading) proposal {
	p := proposal{status: autoscalingv2.MetricStatus{Type: m.Type}}
	switch {
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		v.proposeResource(&p, m.Resource, r)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		v.proposeContainer(&p, m.ContainerResource, r)
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		v.proposePods(&p, m.Pods, r)
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		v.proposeObject(&p, m.Object, r)
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		v.proposeExternal(&p, m.External, r)
	default:
		p.reason, p.what = "InvalidMetricSourceType", "failed to get metric value"
		p.err = defect{fmt.Errorf("unknown metric source type %q", m.Type)}
	}
	return p
}

func (v *view) proposeResource(p *proposal, m *autoscalingv2.ResourceMetricSource, r reading) {
	p.reason, p.what = "FailedGetResourceMetric", fmt.Sprintf("failed to get %s resource metric value", m.Name)
	p.name = fmt.Sprintf("%s resource utilization (percentage of request)", m.Name)
	current := v.proposeUsage(p, m.Name, "", &m.Target, r)
	p.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: m.Name, Current: current}
}

func (v *view) proposeContainer(p *proposal, m *autoscalingv2.ContainerResourceMetricSource, r reading) {
	p.reason, p.what = "FailedGetContainerResourceMetric", fmt.Sprintf("failed to get %s container metric value", m.Container)
	p.name = fmt.Sprintf("%s container resource utilization (percentage of request)", m.Name)
	current := v.proposeUsage(p, m.Name, m.Container, &m.Target, r)
	p.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container, Current: current}
}

// proposeUsage handles both metrics of resources.
func (v *view) proposeUsage(p *proposal, name corev1.ResourceName, container string, t *autoscalingv2.MetricTarget, r reading) autoscalingv2.MetricValueStatus {
	var to target
	what := "utilization"
	var requested map[string]int64
	err := r.err
	if err != nil {
		err = fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	}
	switch {
	case t.AverageValue != nil:
		to, what = amount(t.AverageValue.MilliValue()), "usage"
		p.name = fmt.Sprintf("%s resource", name)
	case t.AverageUtilization == nil:
		p.err = defect{errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")}
		return autoscalingv2.MetricValueStatus{}
	case err == nil:
		requested, err = requests(v.pods, name, container)
		to = percentage{*t.AverageUtilization, requested}
	}
	var u usage
	if err == nil {
		p.replicas, u, err = v.perPod(r.samples, name == corev1.ResourceCPU, to)
	}
	if err != nil {
		p.err = fmt.Errorf("failed to get %s %s: %w", name, what, err)
		return autoscalingv2.MetricValueStatus{}
	}
	now := autoscalingv2.MetricValueStatus{AverageValue: milli(u.average)}
	if t.AverageValue == nil {
		now.AverageUtilization = &u.percent
	}
	return now
}

func (v *view) proposePods(p *proposal, m *autoscalingv2.PodsMetricSource, r reading) {
	p.reason, p.what, p.name = "FailedGetPodsMetric", "failed to get pods metric value", "pods metric "+m.Metric.Name
	if r.err != nil {
		p.err = fmt.Errorf("unable to get metric %s: %w", m.Metric.Name, r.err)
		return
	}
	replicas, u, err := v.perPod(r.samples, false, amount(m.Target.AverageValue.MilliValue()))
	p.replicas, p.err = replicas, err
	p.status.Pods = &autoscalingv2.PodsMetricStatus{Metric: m.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: milli(u.average)}}
}

func (v *view) proposeObject(p *proposal, m *autoscalingv2.ObjectMetricSource, r reading) {
	of := m.DescribedObject
	p.reason, p.what, p.name = "FailedGetObjectMetric", "failed to get object metric value", fmt.Sprintf("%s metric %s", of.Kind, m.Metric.Name)
	if r.err != nil {
		p.err = fmt.Errorf("unable to get metric %s on %s %s/%s: %w", m.Metric.Name, of.Kind, v.Namespace, of.Name, r.err)
		return
	}
	p.status.Object = &autoscalingv2.ObjectMetricStatus{Metric: m.Metric, DescribedObject: of}
	switch t := &m.Target; {
	case t.Type == autoscalingv2.ValueMetricType && t.Value != nil:
		p.replicas, p.err = v.total(r.value, t.Value.MilliValue())
		p.status.Object.Current.Value = milli(r.value)
	case t.Type == autoscalingv2.AverageValueMetricType && t.AverageValue != nil:
		var share int64
		p.replicas, share = v.shared(r.value, t.AverageValue.MilliValue())
		p.status.Object.Current.AverageValue = milli(share)
	default:
		p.err = defect{errors.New("invalid object metric source: neither a value target nor an average value target was set")}
	}
}

func (v *view) proposeExternal(p *proposal, m *autoscalingv2.ExternalMetricSource, r reading) {
	p.reason, p.what = "FailedGetExternalMetric", fmt.Sprintf("failed to get %s external metric value", m.Metric.Name)
	p.name = fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector)
	if r.err != nil {
		p.err = fmt.Errorf("unable to get external metric %s/%s/%+v: %w", v.Namespace, m.Metric.Name, m.Metric.Selector, r.err)
	}
	status := &autoscalingv2.ExternalMetricStatus{Metric: m.Metric}
	switch t := &m.Target; {
	case t.AverageValue != nil:
		if p.err != nil {
			p.err = fmt.Errorf("failed to get %s external metric: %w", m.Metric.Name, p.err)
			return
		}
		var share int64
		p.replicas, share = v.shared(r.value, t.AverageValue.MilliValue())
		status.Current.AverageValue = milli(share)
	case t.Value != nil:
		if p.err == nil {
			p.replicas, p.err = v.total(r.value, t.Value.MilliValue())
		}
		if p.err != nil {
			p.err = fmt.Errorf("failed to get external metric %s: %w", m.Metric.Name, p.err)
			return
		}
		status.Current.Value = milli(r.value)
	default:
		p.err = defect{errors.New("invalid external metric source: neither a value target nor an average value target was set")}
		return
	}
	p.status.External = status
}

// milli returns a quantity of thousandths.
func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
