package audit

import "github.com/prometheus/client_golang/prometheus"

// metrics are the series of this package, named as upstream's.
type metrics struct {
	events   prometheus.Counter
	errors   *prometheus.CounterVec
	rejected prometheus.Counter

	suppressed prometheus.Counter
	levels     map[Level]prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_event_total", Help: "Audit events made.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_error_total", Help: "Audit events lost: the backend failed, or fell behind and its queue was full.",
		}, []string{"plugin"}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_requests_rejected_total", Help: "Requests refused because they could not be recorded.",
		}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podium_audit_suppressed_requests_total", Help: "Unauthenticated requests that were not recorded, since there were too many.",
		}),
		levels: map[Level]prometheus.Counter{},
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_audit_level_total", Help: "Requests by the level that the policy gives them.",
	}, []string{"level"})
	for _, l := range levels {
		m.levels[l] = requests.WithLabelValues(string(l))
	}
	if r != nil {
		r.MustRegister(m.events, m.errors, m.rejected, m.suppressed, requests)
	}
	return m
}

func (m *metrics) level(l Level) { m.levels[l].Inc() }
