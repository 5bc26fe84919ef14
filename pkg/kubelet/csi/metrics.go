package csi

import (
	"context"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"podium/pkg/prom"
)

// Metrics time the calls to drivers, with upstream's name.
type Metrics struct{ calls *prometheus.HistogramVec }

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{prom.For(r).HistogramVec("csi_operations_seconds", "Container Storage Interface operation duration with gRPC error code status total.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, "driver_name", "method_name", "grpc_status_code", "migrated")}
}

// intercept gives every call of a driver its timeout (0: none) and observes it. m may be
// nil.
func (m *Metrics) intercept(driver string, timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if timeout > 0 {
			limited, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			ctx = limited
		}
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if m != nil {
			m.calls.WithLabelValues(driver, path.Base(method), status.Code(err).String(), "false").Observe(time.Since(start).Seconds())
		}
		return err
	}
}
