package podresources

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

const versionLabel = "server_api_version"

// Metrics count requests, with upstream's names. A nil *Metrics counts nothing.
type Metrics struct {
	requests, lists, gets, allocatables *prometheus.CounterVec
	getErrors                           *prometheus.CounterVec // the other requests do not fail
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	count := func(name, help string) *prometheus.CounterVec {
		return f.CounterVec("kubelet_pod_resources_endpoint_"+name, help+" by API version.", versionLabel)
	}
	return &Metrics{
		requests:     count("requests_total", "Cumulative number of requests to the pod resources API"),
		lists:        count("requests_list", "Number of List requests to the pod resources API"),
		gets:         count("requests_get", "Number of Get requests to the pod resources API"),
		allocatables: count("requests_get_allocatable", "Number of GetAllocatableResources requests to the pod resources API"),
		getErrors:    count("errors_get", "Number of Get requests to the pod resources API that failed"),
	}
}

func (m *Metrics) list(version string) {
	if m != nil {
		m.requests.WithLabelValues(version).Inc()
		m.lists.WithLabelValues(version).Inc()
	}
}

func (m *Metrics) get() {
	if m != nil {
		m.requests.WithLabelValues("v1").Inc()
		m.gets.WithLabelValues("v1").Inc()
	}
}

func (m *Metrics) allocatable() {
	if m != nil {
		m.requests.WithLabelValues("v1").Inc()
		m.allocatables.WithLabelValues("v1").Inc()
	}
}

func (m *Metrics) getFailed() {
	if m != nil {
		m.getErrors.WithLabelValues("v1").Inc()
	}
}
