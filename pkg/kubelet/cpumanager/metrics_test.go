package cpumanager

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Each NUMA node counts the exclusive CPUs that containers have there.
func TestMetricsOfNodes(t *testing.T) {
	m := newTest(t, threads, Options{})
	check := func(when string, want ...float64) {
		t.Helper()
		for node, n := range want {
			if got := testutil.ToFloat64(m.metrics.perNode.WithLabelValues(string(rune('0' + node)))); got != n {
				t.Errorf("%s, node %d has %v exclusive CPUs, want %v", when, node, got, n)
			}
		}
	}
	check("at first", 0, 0)
	p := pod("a", "8 2")
	if err := admit(m, p); err != nil {
		t.Fatal(err)
	}
	check("with a container that fills a node", 2, 8)
	m.Release(p.UID)
	check("without it", 0, 0)
}
