package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

type metrics struct {
	evaluations *prometheus.CounterVec
	duration    *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := prom.For(prometheus.WrapRegistererWith(prometheus.Labels{"name": "authorization-webhook"}, r))
	return &metrics{
		evaluations: f.CounterVec("apiserver_authorization_webhook_evaluations_total", "Questions put to the authorization webhook, by what came of them.", "result"),
		duration:    f.HistogramVec("apiserver_authorization_webhook_duration_seconds", "How long the authorization webhook took.", prometheus.DefBuckets, "result"),
	}
}

// observe records one call of the webhook. A non-nil err counts as an error.
func (m *metrics) observe(err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.evaluations.WithLabelValues(result).Inc()
	m.duration.WithLabelValues(result).Observe(took.Seconds())
}
