package dra

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"podium/pkg/prom"
)

// Metrics time the preparation of claims and the calls to drivers, with upstream's names.
type Metrics struct{ operations, calls *prometheus.HistogramVec }

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f, buckets := prom.For(r), prometheus.ExponentialBucketsRange(.1, 60, 15)
	return &Metrics{
		operations: f.HistogramVec("dra_operations_duration_seconds", "Duration in seconds of preparing or unpreparing all ResourceClaims of a pod, by operation and by whether it failed.", buckets, "operation_name", "is_error"),
		calls:      f.HistogramVec("dra_grpc_operations_duration_seconds", "Duration in seconds of the DRA gRPC operations", buckets, "driver_name", "method_name", "grpc_status_code"),
	}
}

// observe counts an operation that began at start and has ended with *err. m may be nil.
func (m *Metrics) observe(operation string, start time.Time, err *error) {
	if m != nil {
		m.operations.WithLabelValues(operation, strconv.FormatBool(*err != nil)).Observe(time.Since(start).Seconds())
	}
}

// intercept gives every call of a driver its timeout and observes it. m may be nil.
func (m *Metrics) intercept(driver string, timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if m != nil {
			m.calls.WithLabelValues(driver, method, status.Code(err).String()).Observe(time.Since(start).Seconds())
		}
		return err
	}
}

var claimsInUse = prometheus.NewDesc("dra_resource_claims_in_use", "The number of ResourceClaims that are currently in use on the node, by driver name and, as <any>, in total.", []string{"driver_name"}, nil)

// anyDriver is the label value of the claims of all drivers: one claim may have several.
const anyDriver = "<any>"

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) { ch <- claimsInUse }

// Collect implements prometheus.Collector: it counts the claims in use.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{anyDriver: 0}
	m.mu.Lock()
	for _, c := range m.claims {
		counts[anyDriver]++
		for driver := range c.Drivers {
			counts[driver]++
		}
	}
	m.mu.Unlock()
	for driver, n := range counts {
		ch <- prometheus.MustNewConstMetric(claimsInUse, prometheus.GaugeValue, float64(n), driver)
	}
}
