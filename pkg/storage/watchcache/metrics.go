package watchcache

import "github.com/prometheus/client_golang/prometheus"

// What the caches tell about themselves, for each group and resource; the names
// are upstream's where upstream has the series.
var (
	labelNames = []string{"group", "resource"}

	objectsDesc = prometheus.NewDesc("apiserver_resource_objects",
		"Number of stored objects.", labelNames, nil)
	revisionDesc = prometheus.NewDesc("apiserver_watch_cache_resource_version",
		"Revision up to which the watch cache shows the store.", labelNames, nil)
	receivedDesc = prometheus.NewDesc("apiserver_watch_cache_events_received_total",
		"Changes received from the store.", labelNames, nil)
	terminatedDesc = prometheus.NewDesc("apiserver_terminated_watchers_total",
		"Watches the cache ended because their reader was too slow or could not be told what it missed.", labelNames, nil)
	watchersDesc = prometheus.NewDesc("podium_watch_cache_watchers",
		"Watches running now.", labelNames, nil)
	historyDesc = prometheus.NewDesc("podium_watch_cache_history_events",
		"Changes kept for watches that begin in the past.", labelNames, nil)
)

// Describe and Collect make the feed a prometheus.Collector.
func (f *Feed) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{objectsDesc, revisionDesc, receivedDesc, terminatedDesc, watchersDesc, historyDesc} {
		out <- d
	}
}

// Collect reads the present numbers.
func (f *Feed) Collect(out chan<- prometheus.Metric) {
	for _, c := range f.caches {
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
