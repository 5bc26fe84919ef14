package conversion

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// The values of the label failure_type.
const (
	callFailure = "conversion_webhook_call_failure"
	malformed   = "conversion_webhook_malformed_response_failure"
	partial     = "conversion_webhook_partial_response_failure"
	invalid     = "conversion_webhook_invalid_converted_object_failure"
)

// Metrics are upstream's series of conversions.
type Metrics struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	duration *prometheus.HistogramVec
}

// NewMetrics registers the series.
func NewMetrics(r *prometheus.Registry) *Metrics {
	f := prom.For(r)
	return &Metrics{
		requests: f.CounterVec("apiserver_conversion_webhook_request_total", "Counter for conversion webhook requests with success/failure and failure error type", "result", "failure_type"),
		latency: f.HistogramVec("apiserver_conversion_webhook_duration_seconds", "Conversion webhook request latency",
			[]float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60}, "result", "failure_type"),
		duration: f.HistogramVec("apiserver_crd_conversion_webhook_duration_seconds", "CRD webhook conversion duration in seconds",
			prometheus.ExponentialBuckets(0.001, 2, 15), "crd_name", "from_version", "to_version", "succeeded"),
	}
}

// observe counts one review.
func (m *Metrics) observe(crd, from, to, failure string, took time.Duration) {
	result := "success"
	if failure != "" {
		result = "failure"
	}
	m.requests.WithLabelValues(result, failure).Inc()
	m.latency.WithLabelValues(result, failure).Observe(took.Seconds())
	m.duration.WithLabelValues(crd, from, to, strconv.FormatBool(failure == "")).Observe(took.Seconds())
}
