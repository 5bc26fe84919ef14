package watchcache

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the caches, by group and resource. The names are those of
// kube-apiserver where it has the metric.
var (
	labelNames = []string{"group", "resource"}

	objectsDesc = prometheus.NewDesc("apiserver_resource_objects",
		"Number of stored objects.", labelNames, nil)
	revisionDesc = prometheus.NewDesc("apiserver_watch_cache_resource_version",
		"Revision up to which the watch cache shows the store.", labelNames, nil)
	receivedDesc = prometheus.NewDesc("apiserver_watch_cache_events_received_total",
		"Changes received from the store.", labelNames, nil)
	terminatedDesc = prometheus.NewDesc("apiserver_terminated_watchers_total",
		"Watches the cache ended because their reader was too slow or missed events that are no longer available.", labelNames, nil)
	watchersDesc = prometheus.NewDesc("podium_watch_cache_watchers",
		"Watches running now.", labelNames, nil)
	historyDesc = prometheus.NewDesc("podium_watch_cache_history_events",
		"Changes kept for watches that begin in the past.", labelNames, nil)
)

// Describe implements prometheus.Collector.
func (f *Feed) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{objectsDesc, revisionDesc, receivedDesc, terminatedDesc, watchersDesc, historyDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f *Feed) Collect(out chan<- prometheus.Metric) {
	for _, same := range *f.caches.Load() {
		c := same[0] // series must be unique
		c.collect(out)
	}
}

func (c *Cache) collect(out chan<- prometheus.Metric) {
	published := c.feed.revision.Load()
	c.mu.Lock()
	objects, revision := c.live.Len(), max(published, c.revision)
	received, cut := c.received, c.watchers.cut
	watchers, history := c.watchers.count, len(c.history.changes)
	c.mu.Unlock()

	group, resource := c.cfg.Kind.Group, c.cfg.Kind.Resource
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, group, resource)
	}
	counter := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, group, resource)
	}
	gauge(objectsDesc, float64(objects))
	gauge(revisionDesc, float64(revision))
	counter(receivedDesc, float64(received))
	counter(terminatedDesc, float64(cut))
	gauge(watchersDesc, float64(watchers))
	gauge(historyDesc, float64(history))
}
