package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/netrules"
	"podium/pkg/prom"
	"podium/pkg/proxy/services"
)

type metrics struct {
	syncDuration, fullDuration, partialDuration prometheus.Histogram
	programming                                 prometheus.Histogram
	lastSync, lastQueued                        prometheus.Gauge
	serviceChanges, endpointChanges             prometheus.Counter
	rulesTotal, rulesLast                       *prometheus.GaugeVec
	failures, partialFailures                   prometheus.Counter
	conntrackDeleted, repairs                   prometheus.Counter
	noLocal                                     *prometheus.GaugeVec
}

// Label values of the traffic policy.
const (
	policyInternal = "internal"
	policyExternal = "external"
)

// newMetrics registers the metrics, with upstream's names and labels.
func newMetrics(r *prometheus.Registry, family services.Family, p *pending) *metrics {
	f, ofFamily := prom.For(r), prom.For(prometheus.WrapRegistererWith(prometheus.Labels{"ip_family": family.String()}, r))
	f.GaugeFunc("kubeproxy_sync_proxy_rules_service_changes_pending", "Service changes that wait for a sync.",
		func() float64 { n, _ := p.counts(); return float64(n) })
	f.GaugeFunc("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "EndpointSlice changes that wait for a sync.",
		func() float64 { _, n := p.counts(); return float64(n) })
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		syncDuration:     ofFamily.Histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Time of a sync.", seconds),
		fullDuration:     ofFamily.Histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "Time of a sync that wrote everything.", seconds),
		partialDuration:  ofFamily.Histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "Time of a sync that wrote changes only.", seconds),
		programming:      ofFamily.Histogram("kubeproxy_network_programming_duration_seconds", "Time from the change of a pod or Service to its rules.", prometheus.ExponentialBuckets(0.01, 2, 15)),
		lastSync:         ofFamily.Gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When rules were last written."),
		lastQueued:       ofFamily.Gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When the last sync was requested."),
		serviceChanges:   f.Counter("kubeproxy_sync_proxy_rules_service_changes_total", "Service changes applied."),
		endpointChanges:  f.Counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "EndpointSlice changes applied."),
		rulesTotal:       ofFamily.GaugeVec("kubeproxy_sync_proxy_rules_iptables_total", "Rules of kube-proxy in the kernel.", "table"),
		rulesLast:        ofFamily.GaugeVec("kubeproxy_sync_proxy_rules_iptables_last", "Rules written by the last sync.", "table"),
		failures:         ofFamily.Counter("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "Batches that iptables-restore refused."),
		partialFailures:  ofFamily.Counter("kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", "Batches of changes that iptables-restore refused."),
		conntrackDeleted: ofFamily.Counter("kubeproxy_conntrack_reconciler_deleted_entries_total", "Tracked flows that led nowhere and were ended."),
		repairs:          f.Counter("kubeproxy_rules_repaired_total", "Times rules were restored after another program had changed them."),
		noLocal:          ofFamily.GaugeVec("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Ports of Services with a Local policy that have endpoints on other nodes only.", "traffic_policy"),
	}
	m.noLocal.WithLabelValues(policyInternal)
	m.noLocal.WithLabelValues(policyExternal)
	return m
}

// replaced counts the ports of a Service without endpoints on this node anew.
func (m *metrics) replaced(old, new services.Service) {
	m.addNoLocal(old.Ports, -1)
	m.addNoLocal(new.Ports, 1)
}

func (m *metrics) addNoLocal(ports []services.Port, n float64) {
	for i := range ports {
		p := &ports[i]
		if !p.Any || len(p.Local) > 0 {
			continue
		}
		if p.InternalLocal {
			m.noLocal.WithLabelValues(policyInternal).Add(n)
		}
		if p.ExternalLocal {
			m.noLocal.WithLabelValues(policyExternal).Add(n)
		}
	}
}

func (m *metrics) synced(began time.Time, todo batch, written netrules.Batch, full bool, set *netrules.Set) {
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
	for _, table := range netrules.Tables() {
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
