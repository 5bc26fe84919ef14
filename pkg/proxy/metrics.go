package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/proxy/rules"
)

type metrics struct {
	syncDuration, fullDuration, partialDuration prometheus.Histogram
	programming                                 prometheus.Histogram
	lastSync, lastQueued                        prometheus.Gauge
	serviceChanges, endpointChanges             prometheus.Counter
	rulesTotal, rulesLast                       *prometheus.GaugeVec
	failures, partialFailures                   prometheus.Counter
	conntrackDeleted, repairs                   prometheus.Counter
}

// newMetrics declares the series, under upstream's names.
func newMetrics(r *prometheus.Registry, p *pending) *metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubeproxy_" + name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "kubeproxy_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeproxy_" + name, Help: help})
		r.MustRegister(g)
		return g
	}
	byTable := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubeproxy_" + name, Help: help}, []string{"table"})
		r.MustRegister(g)
		return g
	}
	waiting := func(name, help string, f func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubeproxy_" + name, Help: help},
			func() float64 { return float64(f()) }))
	}
	waiting("sync_proxy_rules_service_changes_pending", "Service changes that wait for a sync.",
		func() int { n, _ := p.counts(); return n })
	waiting("sync_proxy_rules_endpoint_changes_pending", "EndpointSlice changes that wait for a sync.",
		func() int { _, n := p.counts(); return n })
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	return &metrics{
		syncDuration:     histogram("sync_proxy_rules_duration_seconds", "Time of a sync.", seconds),
		fullDuration:     histogram("sync_full_proxy_rules_duration_seconds", "Time of a sync that wrote everything.", seconds),
		partialDuration:  histogram("sync_partial_proxy_rules_duration_seconds", "Time of a sync that wrote changes only.", seconds),
		programming:      histogram("network_programming_duration_seconds", "Time from the change of a pod or Service to its rules.", prometheus.ExponentialBuckets(0.01, 2, 15)),
		lastSync:         gauge("sync_proxy_rules_last_timestamp_seconds", "When rules were last written."),
		lastQueued:       gauge("sync_proxy_rules_last_queued_timestamp_seconds", "When the last sync was asked for."),
		serviceChanges:   counter("sync_proxy_rules_service_changes_total", "Service changes applied."),
		endpointChanges:  counter("sync_proxy_rules_endpoint_changes_total", "EndpointSlice changes applied."),
		rulesTotal:       byTable("sync_proxy_rules_iptables_total", "Rules of ours in the kernel."),
		rulesLast:        byTable("sync_proxy_rules_iptables_last", "Rules written by the last sync."),
		failures:         counter("sync_proxy_rules_iptables_restore_failures_total", "Batches that iptables-restore refused."),
		partialFailures:  counter("sync_proxy_rules_iptables_partial_restore_failures_total", "Batches of changes that iptables-restore refused."),
		conntrackDeleted: counter("conntrack_reconciler_deleted_entries_total", "Tracked flows that led nowhere and were ended."),
		repairs:          counter("rules_repaired_total", "Times our rules were changed by others and restored."),
	}
}

func (m *metrics) synced(began time.Time, todo batch, written rules.Batch, full bool, set *rules.Set) {
	now := time.Now()
	took := now.Sub(began).Seconds()
	m.syncDuration.Observe(took)
	if full {
		m.fullDuration.Observe(took)
	} else {
		m.partialDuration.Observe(took)
	}
	m.lastSync.SetToCurrentTime()
	if !todo.queued.IsZero() {
		m.lastQueued.Set(float64(todo.queued.UnixNano()) / 1e9)
	}
	m.serviceChanges.Add(float64(todo.serviceChanges))
	m.endpointChanges.Add(float64(todo.endpointChanges))
	for _, t := range todo.triggers {
		m.programming.Observe(now.Sub(t).Seconds())
	}
	for _, table := range rules.Tables() {
		m.rulesTotal.WithLabelValues(table).Set(float64(set.Count(table)))
		m.rulesLast.WithLabelValues(table).Set(float64(written.Count(table)))
	}
}

func (m *metrics) restoreFailed(full bool) {
	m.failures.Inc()
	if !full {
		m.partialFailures.Inc()
	}
}
