package manager

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// showLeading returns a function that shows whether this replica holds the lease, under upstream's
// name.
func showLeading(r prometheus.Registerer, lease string) func(bool) {
	g := prom.For(r).GaugeVec("leader_election_master_status", "1 if this replica leads.", "name").WithLabelValues(lease)
	return func(yes bool) {
		g.Set(0)
		if yes {
			g.Set(1)
		}
	}
}
