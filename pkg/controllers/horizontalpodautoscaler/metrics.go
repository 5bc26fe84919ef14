package horizontalpodautoscaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"podium/pkg/controller/loop"
	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct {
	reconciles, computations *prometheus.CounterVec
	took, computed           *prometheus.HistogramVec
	autoscalers              prometheus.Gauge
	desired                  *prometheus.GaugeVec
}

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	const prefix = "horizontal_pod_autoscaler_controller_"
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	return &Metrics{
		reconciles:   f.CounterVec(prefix+"reconciliations_total", "Reconciles of autoscalers, by what they did (scale_up, scale_down, none) and by their error (spec, internal, none)", "action", "error"),
		took:         f.HistogramVec(prefix+"reconciliation_duration_seconds", "Time of a reconcile of an autoscaler", buckets, "action", "error"),
		computations: f.CounterVec(prefix+"metric_computation_total", "Computations of the replicas that one metric asks for, by the direction of the change, the error and the type of the metric", "action", "error", "metric_type"),
		computed:     f.HistogramVec(prefix+"metric_computation_duration_seconds", "Time of reading one metric", buckets, "action", "error", "metric_type"),
		autoscalers:  f.Gauge(prefix+"num_horizontal_pod_autoscalers", "Autoscalers that exist"),
		desired:      f.GaugeVec(prefix+"desired_replicas", "Replicas that an autoscaler wants", "namespace", "hpa_name"),
	}
}

// changed counts the autoscalers. It has the signature of an event handler of their informer.
func (m *Metrics) changed(old, new *autoscalingv2.HorizontalPodAutoscaler) {
	switch {
	case old == nil:
		m.autoscalers.Inc()
	case new == nil:
		m.autoscalers.Dec()
		m.desired.DeleteLabelValues(old.Namespace, old.Name)
	}
}

// reconciled records a reconcile that changed the replicas by some number.
func (m *Metrics) reconciled(key loop.Key, began time.Time, change int32, o *outcome, err error) {
	labels := []string{direction(change), class(err)}
	m.reconciles.WithLabelValues(labels...).Inc()
	m.took.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	if o != nil {
		m.desired.WithLabelValues(key.Namespace, key.Name).Set(float64(o.status.DesiredReplicas))
	}
}

// computedAll records what each metric asked for.
func (m *Metrics) computedAll(v *view, proposals []proposal) {
	for i, p := range proposals {
		action := "none"
		if p.err == nil {
			action = direction(p.replicas - v.scale.Spec.Replicas)
		}
		labels := []string{action, class(p.err), string(v.Spec.Metrics[i].Type)}
		m.computations.WithLabelValues(labels...).Inc()
		m.computed.WithLabelValues(labels...).Observe(v.readings[i].took.Seconds())
	}
}

func direction(change int32) string {
	switch {
	case change > 0:
		return "scale_up"
	case change < 0:
		return "scale_down"
	}
	return "none"
}

func class(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &defect{}):
		return "spec"
	}
	return "internal"
}
