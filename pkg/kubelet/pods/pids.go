package pods

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/pids"
)

// PIDs measures the process ids of the node.
type PIDs interface {
	// Measure returns the usage, the eviction threshold, and whether it is met.
	Measure() (u pids.Usage, threshold int64, met bool)
	// Pressure returns the value of the node condition PIDPressure.
	Pressure() bool
}

// relievePIDs evicts one pod per measurePeriod while the node has too few process
// ids available, until ctx ends.
func (m *Manager) relievePIDs(ctx context.Context) {
	if m.cfg.PIDs == nil {
		return
	}
	for backoff.Sleep(ctx, measurePeriod) == nil {
		u, threshold, met := m.cfg.PIDs.Measure()
		if !met {
			continue
		}
		w := m.worstByPIDs()
		if w == nil {
			m.cfg.Log.Warn("too few process ids are available and no pod can be evicted", "available", u.Available(), "threshold", threshold)
			continue
		}
		e := lowOnPIDs(u, threshold)
		w.post(func() { w.evict(e) })
	}
}

// lowOnPIDs returns the eviction for the signal pid.available, with upstream's
// message.
func lowOnPIDs(u pids.Usage, threshold int64) eviction {
	message := fmt.Sprintf("The node was low on resource: pids. Threshold quantity: %v, available: %v. ",
		resource.NewQuantity(threshold, resource.DecimalSI), resource.NewQuantity(u.Available(), resource.DecimalSI))
	return eviction{signal: pids.Signal, message: message, condition: disrupted(message)}
}

// worstByPIDs returns the worker of the pod to evict first: the lowest priority,
// then the most process ids. It returns nil if no pod can be evicted.
func (m *Manager) worstByPIDs() *worker {
	type candidate struct {
		w               *worker
		priority, count int64
	}
	m.mu.Lock()
	workers := slices.Collect(maps.Values(m.workers))
	m.mu.Unlock()
	var all []candidate
	for _, w := range workers {
		w.mu.Lock()
		pod := w.desired
		w.mu.Unlock()
		count := m.cfg.Cgroups.Processes(pod)
		if count == 0 || critical(pod) || finalPhase(pod.Status.Phase) {
			continue
		}
		c := candidate{w: w, count: count}
		if pod.Spec.Priority != nil {
			c.priority = int64(*pod.Spec.Priority)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.count, a.count))
	}).w
}
