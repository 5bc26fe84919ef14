package dns

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// metrics have CoreDNS's names, so that existing dashboards work.
type metrics struct {
	requests      *prometheus.CounterVec   // by protocol and type
	responses     *prometheus.CounterVec   // by code
	duration      prometheus.Histogram     //
	forward       *prometheus.HistogramVec // by server
	forwardErrors *prometheus.CounterVec
	cacheHits     prometheus.Counter
	cacheMisses   prometheus.Counter
	panics        prometheus.Counter

	probes atomic.Uint64 // how often our own probe query arrived
}

func newMetrics(r *prometheus.Registry) *metrics {
	f := prom.For(r)
	return &metrics{
		requests:      f.CounterVec("coredns_dns_requests_total", "Questions, by protocol and type.", "proto", "type"),
		responses:     f.CounterVec("coredns_dns_responses_total", "Answers, by their code.", "rcode"),
		duration:      f.Histogram("coredns_dns_request_duration_seconds", "Time to an answer.", prometheus.ExponentialBuckets(0.00025, 2, 16)),
		forward:       f.HistogramVec("coredns_proxy_request_duration_seconds", "Time that other name servers took.", prometheus.ExponentialBuckets(0.00025, 2, 16), "to"),
		forwardErrors: f.CounterVec("coredns_forward_errors_total", "Questions that another name server did not answer.", "to"),
		cacheHits:     f.Counter("coredns_cache_hits_total", "Answers that were at hand."),
		cacheMisses:   f.Counter("coredns_cache_misses_total", "Queries that were not answered from the cache."),
		panics:        f.Counter("coredns_panics_total", "Questions that broke the program's logic."),
	}
}

// watchCache registers the metrics of the cache's size.
func watchCache(r *prometheus.Registry, c *cache) {
	f := prom.For(r)
	f.GaugeFunc("coredns_cache_entries", "Answers at hand.", func() float64 { n, _ := c.sizes(); return float64(n) })
	f.GaugeFunc("podium_dns_cache_bytes", "What the answers at hand take.", func() float64 { _, b := c.sizes(); return float64(b) })
}
