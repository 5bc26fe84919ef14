package resourceclaim

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/prom"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct {
	creates *prometheus.CounterVec
	counts  *counts
}

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		creates: prom.For(r).CounterVec("resourceclaim_controller_creates_total", "Number of requests that create a ResourceClaim, by status and by whether it asks for admin access", "status", "admin_access"),
		counts: &counts{desc: prometheus.NewDesc("resourceclaim_controller_resource_claims",
			"Number of ResourceClaims, by whether they are allocated, whether they ask for admin access, and what made them", []string{"allocated", "admin_access", "source"}, nil)},
	}
	if r != nil {
		r.MustRegister(m.counts)
	}
	return m
}

func (m *Metrics) created(claim *resourcev1.ResourceClaim, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.creates.WithLabelValues(status, strconv.FormatBool(adminAccess(&claim.Spec))).Inc()
}

// counts is a prometheus.Collector of the number of claims. The process does not know the
// claims while another replica leads.
type counts struct {
	desc *prometheus.Desc
	list atomic.Pointer[func() []*resourcev1.ResourceClaim]
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *counts) Collect(out chan<- prometheus.Metric) {
	list := c.list.Load()
	if list == nil {
		return
	}
	type labels struct {
		allocated, admin bool
		source           string
	}
	numbers := map[labels]int{}
	for _, claim := range (*list)() {
		numbers[labels{claim.Status.Allocation != nil, adminAccess(&claim.Spec), source(claim)}]++
	}
	for l, n := range numbers {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), strconv.FormatBool(l.allocated), strconv.FormatBool(l.admin), l.source)
	}
}

func source(claim *resourcev1.ResourceClaim) string {
	if claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "" {
		return "resource_claim_template"
	}
	return ""
}

func adminAccess(spec *resourcev1.ResourceClaimSpec) bool {
	for i := range spec.Devices.Requests {
		if e := spec.Devices.Requests[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return true
		}
	}
	return false
}
