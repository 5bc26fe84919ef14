package watchcache_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/storage/watchcache"
)

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/a")
		f.update("ns/a")
		last := f.create("ns/b")
		f.latest()
		w := f.watch(watchcache.WatchOptions{After: -1})
		f.watch(watchcache.WatchOptions{After: -1})
		w.Stop()
		w.Stop()

		registry := prometheus.NewRegistry()
		registry.MustRegister(f.feed)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				got[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		same(t, "metrics", map[string]float64{
			"apiserver_resource_objects":                  2,
			"apiserver_watch_cache_resource_version":      float64(last),
			"apiserver_watch_cache_events_received_total": 3,
			"apiserver_terminated_watchers_total":         0,
			"podium_watch_cache_watchers":                 1,
			"podium_watch_cache_history_events":           3,
		}, got)
	})
}
