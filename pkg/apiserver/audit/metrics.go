package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// metrics are the series of this package, named as upstream's where upstream
// has them.
type metrics struct {
	events   prometheus.Counter
	errors   *prometheus.CounterVec
	rejected prometheus.Counter

	suppressed prometheus.Counter
	levels     map[Level]prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := prom.For(r)
	m := &metrics{
		events:     f.Counter("apiserver_audit_event_total", "Audit events made."),
		errors:     f.CounterVec("apiserver_audit_error_total", "Audit events lost: the backend failed, or fell behind and its queue was full.", "plugin"),
		rejected:   f.Counter("apiserver_audit_requests_rejected_total", "Requests refused because they could not be recorded."),
		suppressed: f.Counter("podium_audit_suppressed_requests_total", "Unauthenticated requests that were not recorded, since there were too many."),
		levels:     map[Level]prometheus.Counter{},
	}
	requests := f.CounterVec("apiserver_audit_level_total", "Requests by the level that the policy gives them.", "level")
	for _, l := range levels {
		m.levels[l] = requests.WithLabelValues(string(l))
	}
	return m
}

func (m *metrics) level(l Level) { m.levels[l].Inc() }
