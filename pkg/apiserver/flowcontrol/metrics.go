package flowcontrol

import "github.com/prometheus/client_golang/prometheus"

// reason is why a request was refused.
type reason uint8

const (
	queueFull        reason = iota // the user has too many requests under way
	concurrencyLimit               // the level has no seat
	reasons
)

func (r reason) String() string { return [reasons]string{"queue-full", "concurrency-limit"}[r] }

var (
	seatsDesc = prometheus.NewDesc("apiserver_flowcontrol_current_executing_seats",
		"Seats taken by requests that are worked on, by priority level.", []string{"priority_level"}, nil)
	rejectedDesc = prometheus.NewDesc("apiserver_flowcontrol_rejected_requests_total",
		"Requests refused, by flow schema, priority level and reason.", []string{"flow_schema", "priority_level", "reason"}, nil)
)

// Describe and Collect make Inflight a prometheus.Collector.
func (f *Inflight) Describe(ch chan<- *prometheus.Desc) {
	ch <- seatsDesc
	ch <- rejectedDesc
}

// Collect sends the present figures.
func (f *Inflight) Collect(ch chan<- prometheus.Metric) {
	for l := range levels {
		n := f.seats[l][read].Load() + f.seats[l][write].Load()
		ch <- prometheus.MustNewConstMetric(seatsDesc, prometheus.GaugeValue, float64(n), l.String())
	}
	for s := range schemas {
		for r := range reasons {
			if n := f.rejected[s][r].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(n), s.String(), s.level().String(), r.String())
			}
		}
	}
}
