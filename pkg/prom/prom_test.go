package prom

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSeriesAreRegisteredUnderTheirNames(t *testing.T) {
	r := prometheus.NewRegistry()
	declare(r)
	const want = `
# HELP a_total Things that happened.
# TYPE a_total counter
a_total 1
# HELP b_total Things that happened, by result.
# TYPE b_total counter
b_total{result="ok",verb="get"} 1
# HELP c Present things.
# TYPE c gauge
c 2
# HELP d Present things, by kind.
# TYPE d gauge
d{kind="x"} 3
# HELP e Measured things.
# TYPE e gauge
e 4
# HELP f_seconds Time of a thing.
# TYPE f_seconds histogram
f_seconds_bucket{le="1"} 0
f_seconds_bucket{le="2"} 1
f_seconds_bucket{le="+Inf"} 1
f_seconds_sum 1.5
f_seconds_count 1
# HELP g_seconds Time of a thing, by kind.
# TYPE g_seconds histogram
g_seconds_bucket{kind="x",le="1"} 1
g_seconds_bucket{kind="x",le="+Inf"} 1
g_seconds_sum{kind="x"} 0.5
g_seconds_count{kind="x"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestSeriesWorkWithoutARegistry(*testing.T) { declare(nil) }

func declare(r prometheus.Registerer) {
	f := For(r)
	f.Counter("a_total", "Things that happened.").Inc()
	f.CounterVec("b_total", "Things that happened, by result.", "verb", "result").WithLabelValues("get", "ok").Inc()
	f.Gauge("c", "Present things.").Set(2)
	f.GaugeVec("d", "Present things, by kind.", "kind").WithLabelValues("x").Set(3)
	f.GaugeFunc("e", "Measured things.", func() float64 { return 4 })
	f.Histogram("f_seconds", "Time of a thing.", []float64{1, 2}).Observe(1.5)
	f.HistogramVec("g_seconds", "Time of a thing, by kind.", []float64{1}, "kind").WithLabelValues("x").Observe(0.5)
}
