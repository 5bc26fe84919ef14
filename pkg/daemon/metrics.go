package daemon

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics returns a registry with the metrics of the Go runtime and the process.
func Metrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// MetricsHandler serves a registry's metrics in the format that the client accepts.
func MetricsHandler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r})
}

// Mux returns the pages that every daemon serves: health and metrics. Either may be nil.
func Mux(h *Health, r *prometheus.Registry) *http.ServeMux {
	mux := http.NewServeMux()
	if h != nil {
		pages := h.Handler()
		for _, name := range []string{"healthz", "livez", "readyz"} {
			mux.Handle("/"+name, pages)
			mux.Handle("/"+name+"/", pages)
		}
	}
	if r != nil {
		mux.Handle("/metrics", MetricsHandler(r))
	}
	return mux
}
