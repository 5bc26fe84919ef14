package dns

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are named as CoreDNS names them, so that dashboards go on working.
type metrics struct {
	requests      *prometheus.CounterVec   // by protocol and type
	responses     *prometheus.CounterVec   // by code
	duration      prometheus.Histogram     //
	forward       *prometheus.HistogramVec // by server
	forwardErrors *prometheus.CounterVec
	cacheHits     prometheus.Counter
	cacheMisses   prometheus.Counter
	panics        prometheus.Counter

	probes atomic.Uint64 // how often our own probe came back
}

func newMetrics(r *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coredns_dns_requests_total", Help: "Questions, by protocol and type.",
		}, []string{"proto", "type"}),
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coredns_dns_responses_total", Help: "Answers, by their code.",
		}, []string{"rcode"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "coredns_dns_request_duration_seconds", Help: "Time to an answer.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
		forward: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coredns_proxy_request_duration_seconds", Help: "Time that other name servers took.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}, []string{"to"}),
		forwardErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coredns_forward_errors_total", Help: "Questions that another name server did not answer.",
		}, []string{"to"}),
		cacheHits:   prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_hits_total", Help: "Answers that were at hand."}),
		cacheMisses: prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_misses_total", Help: "Answers that had to be asked for."}),
		panics:      prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_panics_total", Help: "Questions that broke the program's logic."}),
	}
	r.MustRegister(m.requests, m.responses, m.duration, m.forward, m.forwardErrors, m.cacheHits, m.cacheMisses, m.panics)
	return m
}

// watchCache adds how much the cache holds.
func watchCache(r *prometheus.Registry, c *cache) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coredns_cache_entries", Help: "Answers at hand."},
			func() float64 { n, _ := c.sizes(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "podium_dns_cache_bytes", Help: "What the answers at hand take."},
			func() float64 { _, b := c.sizes(); return float64(b) }),
	)
}
