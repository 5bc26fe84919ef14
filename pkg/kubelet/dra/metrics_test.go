package dra

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.stop()
	registry := prometheus.NewRegistry()
	w.cfg.Metrics = NewMetrics(registry)
	w.start()
	registry.MustRegister(w.m)
	w.driver(gpu)
	w.driver(nic)
	w.claim("one", []string{"card " + gpu}, "a")
	w.claim("two", []string{"card " + gpu, "port " + nic}, "a")
	must(t, w.m.Prepare(t.Context(), pod("a", "one", "two")))
	const want = `
# HELP dra_resource_claims_in_use The number of ResourceClaims that are currently in use on the node, by driver name and, as <any>, in total.
# TYPE dra_resource_claims_in_use gauge
dra_resource_claims_in_use{driver_name="<any>"} 2
dra_resource_claims_in_use{driver_name="gpu.example.com"} 2
dra_resource_claims_in_use{driver_name="nic.example.com"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "dra_resource_claims_in_use"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(w.cfg.Metrics.calls); n != 2 {
		t.Errorf("%d series of calls", n)
	}
	if n := testutil.CollectAndCount(w.cfg.Metrics.operations); n != 1 {
		t.Errorf("%d series of operations", n)
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
}
