package cpumanager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"podium/pkg/kubelet/topology"
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

// With full-pcpus-only containers have whole cores, or nothing. Without it nothing says so, but a
// shared cache is counted.
func TestAlignedCPUsAreCounted(t *testing.T) {
	const done, failed = "kubelet_container_aligned_compute_resources_count", "kubelet_container_aligned_compute_resources_failure_count"
	for _, full := range []bool{true, false} {
		r := prometheus.NewRegistry()
		c := config(t.TempDir(), threads, Options{FullCores: full})
		c.Aligned = topology.NewAligned(r)
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for i, cpus := range []string{"2", "3", "10"} { // 3 is not a number of cores, 10 are more than share a cache
			if err := admit(m, pod(fmt.Sprint(i), cpus)); (err != nil) != (full && cpus == "3") {
				t.Errorf("%s CPUs: %v", cpus, err)
			}
		}
		want := `kubelet_container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"} 2` + "\n"
		if full {
			want = `kubelet_container_aligned_compute_resources_count{boundary="physical_cpu",scope="container"} 2
kubelet_container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"} 1
# HELP kubelet_container_aligned_compute_resources_failure_count Number of pods or containers whose resources could not be aligned, by scope and boundary.
# TYPE kubelet_container_aligned_compute_resources_failure_count counter
kubelet_container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"} 1
`
		}
		want = `# HELP kubelet_container_aligned_compute_resources_count Number of pods or containers whose resources were aligned, by scope and boundary.
# TYPE kubelet_container_aligned_compute_resources_count counter
` + want
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), done, failed); err != nil {
			t.Errorf("full cores %v: %v", full, err)
		}
	}
}
