package cpumanager

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/cpuset"

	"podium/pkg/kubelet/hardware"
	"podium/pkg/prom"
)

// metrics are the metrics of the package, with upstream's names.
type metrics struct {
	requests, errors  prometheus.Counter
	shared, exclusive prometheus.Gauge
	perNode           *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := prom.For(r)
	return &metrics{
		requests:  f.Counter("kubelet_cpu_manager_pinning_requests_total", "Number of containers that were to get exclusive CPUs."),
		errors:    f.Counter("kubelet_cpu_manager_pinning_errors_total", "Number of containers that could not get exclusive CPUs."),
		shared:    f.Gauge("kubelet_cpu_manager_shared_pool_size_millicores", "Size of the shared CPU pool in millicores."),
		exclusive: f.Gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "Number of exclusive CPUs."),
		perNode:   f.GaugeVec("kubelet_cpu_manager_allocation_per_numa", "Number of exclusive CPUs of each NUMA node.", "numa_node"),
	}
}

func (m *metrics) pinned(err error) {
	m.requests.Inc()
	if err != nil {
		m.errors.Inc()
	}
}

func (m *metrics) state(shared, exclusive cpuset.CPUSet, machine hardware.Machine) {
	m.shared.Set(float64(shared.Size()) * 1000)
	m.exclusive.Set(float64(exclusive.Size()))
	for node, cpus := range machine.Groups(machine.All(), hardware.ByNode) {
		m.perNode.WithLabelValues(strconv.Itoa(node)).Set(float64(cpus.Intersection(exclusive).Size()))
	}
}
