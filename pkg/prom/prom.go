// Package prom declares Prometheus series in a line each.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Factory makes series and registers them. Its methods panic if the registry
// has a series of that name, or if a name or label is invalid; they are meant
// for a daemon's start.
type Factory struct{ auto promauto.Factory }

// For returns a factory that registers with r. If r is nil the series work but
// are not shown. For constant labels, see prometheus.WrapRegistererWith.
func For(r prometheus.Registerer) Factory { return Factory{promauto.With(r)} }

// Counter makes a number that only grows.
func (f Factory) Counter(name, help string) prometheus.Counter {
	return f.auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// CounterVec makes a counter for each combination of values of labels.
func (f Factory) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return f.auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge makes a number that goes up and down.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	return f.auto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// GaugeVec makes a gauge for each combination of values of labels.
func (f Factory) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// GaugeFunc makes a gauge whose value is that of read, which is called at each
// scrape and from several goroutines.
func (f Factory) GaugeFunc(name, help string, read func() float64) {
	f.auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// Histogram makes a distribution over buckets, which are upper bounds in
// increasing order; nil: prometheus.DefBuckets.
func (f Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return f.auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// HistogramVec makes a histogram for each combination of values of labels.
func (f Factory) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.auto.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
