package topology

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// What the resources of a pod or container lie within, in metrics.
const (
	WithinNode  = "numa_node"
	WithinCores = "physical_cpu" // whole cores
	WithinCache = "uncore_cache"
)

// Aligned counts resources that were allocated with a guaranteed alignment, with upstream's names.
// A nil *Aligned counts nothing.
type Aligned struct{ done, failed *prometheus.CounterVec }

// NewAligned returns an Aligned that counts in a registry; nil: it is not shown.
func NewAligned(r prometheus.Registerer) *Aligned {
	f := prom.For(r)
	return &Aligned{
		done:   f.CounterVec("kubelet_container_aligned_compute_resources_count", "Number of pods or containers whose resources were aligned, by scope and boundary.", "scope", "boundary"),
		failed: f.CounterVec("kubelet_container_aligned_compute_resources_failure_count", "Number of pods or containers whose resources could not be aligned, by scope and boundary.", "scope", "boundary"),
	}
}

// Count counts an allocation for a scope (ScopeContainer, ScopePod) within a boundary, or that
// it failed.
func (a *Aligned) Count(scope, boundary string, err error) {
	switch {
	case a == nil:
	case err != nil:
		a.failed.WithLabelValues(scope, boundary).Inc()
	default:
		a.done.WithLabelValues(scope, boundary).Inc()
	}
}
