package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	evaluations *prometheus.CounterVec
	duration    *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	labels := prometheus.Labels{"name": "authorization-webhook"}
	m := &metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_webhook_evaluations_total", ConstLabels: labels,
			Help: "Questions put to the authorization webhook, by what came of them.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_authorization_webhook_duration_seconds", ConstLabels: labels,
			Help: "How long the authorization webhook took.", Buckets: prometheus.DefBuckets,
		}, []string{"result"}),
	}
	if r != nil {
		r.MustRegister(m.evaluations, m.duration)
	}
	return m
}

func (m *metrics) observe(err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.evaluations.WithLabelValues(result).Inc()
	m.duration.WithLabelValues(result).Observe(took.Seconds())
}
